#include "core/train/logging/loss_plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"

namespace anyorder {
namespace {

using Point = LossCurve::Point;

constexpr double kWidth = 800, kHeight = 450;
constexpr double kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;

struct Axis {
  double low = 0, high = 1;        // data
  double at_low = 0, at_high = 1;  // pixels
  double Pixel(double value) const {
    return at_low + (value - low) / (high - low) * (at_high - at_low);
  }
};

// 1, 2 or 5 times a power of ten, so that about `count` ticks fit.
double TickDistance(double span, int count) {
  const double rough = span / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

// NaN without a finite loss.
Point Mean(absl::Span<const Point> points) {
  Point mean;
  double finite = 0;
  for (const Point& point : points) {
    mean.step += point.step;
    if (!std::isfinite(point.loss)) continue;
    mean.loss += point.loss;
    ++finite;
  }
  mean.step /= static_cast<double>(points.size());
  mean.loss = finite > 0 ? mean.loss / finite : std::nan("");
  return mean;
}

// At most `limit` points, each the mean of its neighbours.
std::vector<Point> Thin(const std::vector<Point>& points, size_t limit) {
  const size_t group = (points.size() + limit - 1) / limit;
  if (group <= 1) return points;
  std::vector<Point> thin;
  for (size_t begin = 0; begin < points.size(); begin += group)
    thin.push_back(Mean(absl::MakeConstSpan(points).subspan(begin, group)));
  return thin;
}

// Exponential mean over about a twentieth of the points, without the bias of its start. A gap stays
// one.
std::vector<Point> Smooth(const std::vector<Point>& points) {
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(points.size()) / 20);
  std::vector<Point> smooth;
  double sum = 0;
  double weight = 0;
  for (const Point& point : points) {
    if (std::isnan(point.loss)) {
      smooth.push_back(point);
      continue;
    }
    sum = keep * sum + (1 - keep) * point.loss;
    weight = keep * weight + (1 - keep);
    smooth.push_back({point.step, weight > 0 ? sum / weight : point.loss});
  }
  return smooth;
}

// A line for each stretch without a gap. Each point stands there twice if it is alone, so that the
// round ends of a line of no length are a dot.
std::string Curve(const std::vector<Point>& points, const Axis& x, const Axis& y,
                  const char* style) {
  std::string text;
  const auto is_gap = [](const Point& point) { return std::isnan(point.loss); };
  for (auto begin = points.begin(); begin != points.end();) {
    const auto end = std::find_if(begin, points.end(), is_gap);
    if (begin != end)
      absl::StrAppend(&text, "<polyline fill=\"none\" stroke-linecap=\"round\" ", style,
                      " points=\"");
    for (auto point = begin; point != end; ++point) {
      const std::string place =
          absl::StrFormat("%.1f,%.1f ", x.Pixel(point->step), y.Pixel(point->loss));
      absl::StrAppend(&text, place, end - begin == 1 ? place : "");
    }
    if (begin != end) absl::StrAppend(&text, "\"/>\n");
    begin = end == points.end() ? end : end + 1;
  }
  return text;
}

std::string Text(double x, double y, const char* anchor, absl::string_view content) {
  const std::string safe =
      absl::StrReplaceAll(content, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         safe);
}

std::string Grid(const Axis& x, const Axis& y) {
  std::string text;
  const double dy = TickDistance(y.high - y.low, 6);
  for (double value = std::ceil(y.low / dy) * dy; value <= y.high; value += dy) {
    const double at = y.Pixel(value);
    absl::StrAppendFormat(
        &text, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
        x.at_low, at, x.at_high, at);
    text += Text(x.at_low - 8, at + 4, "end", absl::StrFormat("%g", std::round(value / dy) * dy));
  }
  const double dx = std::max(1.0, TickDistance(x.high - x.low, 8));
  for (double value = std::ceil(x.low / dx) * dx; value <= x.high; value += dx) {
    const double at = x.Pixel(value);
    absl::StrAppendFormat(
        &text, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#eee\"/>\n", at,
        y.at_high, at, y.at_low);
    text += Text(at, y.at_low + 18, "middle", absl::StrFormat("%.0f", value));
  }
  absl::StrAppendFormat(&text,
                        "<path d=\"M%.1f %.1f V%.1f H%.1f\" fill=\"none\" stroke=\"#333\"/>\n",
                        x.at_low, y.at_high, y.at_low, x.at_high);
  return text;
}

}  // namespace

void LossCurve::Add(int64_t step, double loss) {
  group_points_.push_back({static_cast<double>(step), loss});
  if (std::ssize(group_points_) < group_) return;
  points_.push_back(Mean(group_points_));
  group_points_.clear();
  if (points_.size() < kMostPoints) return;
  group_ *= 2;
  points_ = Thin(points_, kMostPoints / 2);
}

std::vector<LossCurve::Point> LossCurve::Points() const {
  std::vector<Point> points = points_;
  if (!group_points_.empty()) points.push_back(Mean(group_points_));
  return points;
}

std::string LossCurve::Plot(absl::string_view title) const {
  const std::vector<Point> points = Points();
  Axis x{0, 1, kLeft, kWidth - kRight};
  Axis y{0, 1, kHeight - kBottom, kTop};
  if (!points.empty()) x.high = std::max(1.0, points.back().step);
  std::vector<Point> drawn = points;
  std::erase_if(drawn, [](const Point& point) { return std::isnan(point.loss); });
  if (!drawn.empty()) {
    const auto by_loss = [](const Point& a, const Point& b) { return a.loss < b.loss; };
    const auto [low, high] = std::minmax_element(drawn.begin(), drawn.end(), by_loss);
    const double margin = std::max(0.05 * (high->loss - low->loss), 0.01);
    y.low = low->loss - margin;
    y.high = high->loss + margin;
  }
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"white\"/>\n",
      kWidth, kHeight, kWidth, kHeight);
  svg += Text(kWidth / 2, 22, "middle", title);
  svg += Text(kWidth / 2, kHeight - 10, "middle", "step");
  svg += "<g transform=\"rotate(-90 16 225)\">" + Text(16, 225, "middle", "loss (nats a target)") +
         "</g>\n";
  svg += Grid(x, y);
  svg += Curve(Thin(points, 700), x, y, "stroke=\"#9ecae1\" stroke-width=\"1\"");
  svg += Curve(Thin(Smooth(points), 700), x, y, "stroke=\"#08519c\" stroke-width=\"2\"");
  return svg + "</svg>\n";
}

}  // namespace anyorder
