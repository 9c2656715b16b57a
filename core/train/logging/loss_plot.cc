#include "core/train/logging/loss_plot.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

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

// At most `limit` points, each the mean of its neighbours.
std::vector<Point> Thin(const std::vector<Point>& points, size_t limit) {
  const size_t group = (points.size() + limit - 1) / limit;
  if (group <= 1) return points;
  std::vector<Point> thin;
  for (size_t begin = 0; begin < points.size(); begin += group) {
    const size_t end = std::min(points.size(), begin + group);
    Point mean;
    for (size_t i = begin; i < end; ++i) {
      mean.step += points[i].step / static_cast<double>(end - begin);
      mean.loss += points[i].loss / static_cast<double>(end - begin);
    }
    thin.push_back(mean);
  }
  return thin;
}

// Exponential mean over about a twentieth of the points, without the bias of its start.
std::vector<Point> Smooth(const std::vector<Point>& points) {
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(points.size()) / 20);
  std::vector<Point> smooth;
  double sum = 0;
  double weight = 0;
  for (const Point& point : points) {
    sum = keep * sum + (1 - keep) * point.loss;
    weight = keep * weight + (1 - keep);
    smooth.push_back({point.step, weight > 0 ? sum / weight : point.loss});
  }
  return smooth;
}

std::string Curve(const std::vector<Point>& points, const Axis& x, const Axis& y,
                  const char* style) {
  std::string text = absl::StrCat("<polyline fill=\"none\" ", style, " points=\"");
  for (const Point& point : points)
    absl::StrAppendFormat(&text, "%.1f,%.1f ", x.Pixel(point.step), y.Pixel(point.loss));
  return text + "\"/>\n";
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
  if (!std::isfinite(loss)) return;
  sum_.step += static_cast<double>(step);
  sum_.loss += loss;
  if (++in_sum_ < group_) return;
  const auto count = static_cast<double>(std::exchange(in_sum_, 0));
  const Point sum = std::exchange(sum_, {});
  points_.push_back({sum.step / count, sum.loss / count});
  if (points_.size() < kMostPoints) return;
  group_ *= 2;
  points_ = Thin(points_, kMostPoints / 2);
}

std::vector<LossCurve::Point> LossCurve::Points() const {
  std::vector<Point> points = points_;
  const auto count = static_cast<double>(in_sum_);
  if (in_sum_ > 0) points.push_back({sum_.step / count, sum_.loss / count});
  return points;
}

std::string LossCurve::Plot(absl::string_view title) const {
  const std::vector<Point> points = Points();
  Axis x{0, 1, kLeft, kWidth - kRight};
  Axis y{0, 1, kHeight - kBottom, kTop};
  if (!points.empty()) {
    const auto by_loss = [](const Point& a, const Point& b) { return a.loss < b.loss; };
    const auto [low, high] = std::minmax_element(points.begin(), points.end(), by_loss);
    const double margin = std::max(0.05 * (high->loss - low->loss), 0.01);
    y.low = low->loss - margin;
    y.high = high->loss + margin;
    x.high = std::max(1.0, points.back().step);
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
