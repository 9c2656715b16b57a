'use strict';
// Draws the curves of a report from the numbers in #report-data. All panels share one horizontal axis, which is the time of day
// with the stops in it, time without the stops, or steps. Everything is redrawn on each change: the numbers are few.
(() => {
  const { runs } = JSON.parse(document.getElementById('report-data').textContent);
  const many = runs.length > 1;
  const charts = document.getElementById('charts');
  const spoken = document.getElementById('spoken');
  const LEFT = 58, RIGHT = 14, TOP = 8, BOTTOM = 20;
  const MAX_NODE_ROWS = 16, ROW = 20;
  const MODES = [['step', 'Steps'], ['clock', many ? 'Time since start' : 'Time of day'], ['active', 'Without stops']];
  const view = { mode: 'step', from: 0, to: 1, cursor: null, brush: null };

  // ---- the horizontal axis -------------------------------------------------------------------------------------------------
  for (const run of runs) {
    run.gaps = [];
    for (let i = 1; i < run.starts.length; ++i) {
      const a = run.starts[i - 1].end, b = run.starts[i].begin;
      // Starts that the page leaves out are no stop.
      if (b > a && run.starts[i].n === run.starts[i - 1].n + 1) run.gaps.push([a, b]);
    }
    run.color = `var(--s${runs.indexOf(run) % 6})`;
    run.evals.a = run.evals.a || [];
    // A run without accuracy, compared with classifiers, gets an empty curve.
    if (runs.some(other => other.curves.accuracy) && !run.curves.accuracy)
      run.curves.accuracy = { mean: run.curves.t0.map(() => null), not_finite: 0 };
  }
  const active = (run, t) => run.gaps.reduce((x, [a, b]) => x - Math.max(0, Math.min(t, b) - a), t);
  const place = (run, t, step) => view.mode === 'step' ? step : view.mode === 'active' ? active(run, t) : t;
  const placeBucket = (run, c, i) => (place(run, c.t0[i], c.s0[i]) + place(run, c.t1[i], c.s1[i])) / 2;
  const fullRange = () => {
    const to = Math.max(...runs.map(run => view.mode === 'step' ? run.step : place(run, run.seconds, 0)));
    return [0, to > 0 ? to : 1];
  };

  // ---- words ---------------------------------------------------------------------------------------------------------------
  const number = v => {
    if (v === null || v === undefined || !isFinite(v)) return '–';
    const a = Math.abs(v);
    if (a >= 1e9 || (a !== 0 && a < 1e-3)) return v.toExponential(2).replace(/\.?0+e\+?/, 'e').replace('e+', 'e');
    if (a >= 1e6) return +(v / 1e6).toPrecision(4) + 'M';
    if (a >= 1e4) return +(v / 1e3).toPrecision(4) + 'k';
    return String(+v.toPrecision(4));
  };
  const counted = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`;
  const pad = n => String(n).padStart(2, '0');
  const duration = s => {
    if (s < 60) return `${+s.toFixed(s < 10 ? 2 : 1)} s`;
    if (s < 3600) return `${Math.floor(s / 60)}:${pad(Math.floor(s % 60))} min`;
    if (s < 86400) return `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)} h`;
    return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
  };
  const dateOf = (run, t) => new Date(Math.round(run.origin + 1000 * t));
  // "23:59", with seconds or their hundredths where ticks are so close.
  const timeOfDay = (run, t, step = 1) => dateOf(run, t).toISOString().slice(11, step >= 60 ? 16 : step < 1 ? 22 : 19);
  const day = (run, t) => dateOf(run, t).toLocaleDateString('en-US', { month: 'short', day: 'numeric', timeZone: 'UTC' });
  const nice = (span, count, steps) => {
    const rough = span / count;
    if (steps) { const fit = steps.find(s => s >= rough); if (fit) return fit; }
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].find(f => f * power >= rough * 0.999) * power;
  };
  const TIME_STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
    86400, 172800, 604800, 1209600, 2592000];

  // Places and labels of ticks; with times of day the first and each midnight tells the date.
  const xTicks = width => {
    const span = view.to - view.from, count = Math.max(2, Math.floor(width / 110));
    const ticks = [];
    if (view.mode === 'step') {
      const d = Math.max(1, nice(span, count));
      for (let x = Math.ceil(view.from / d) * d; x <= view.to; x += d) ticks.push([x, number(x)]);
      return ticks;
    }
    const d = nice(span, count, TIME_STEPS);
    if (many || view.mode === 'active') {
      for (let k = Math.ceil(view.from / d); k * d <= view.to; ++k) ticks.push([k * d, duration(k * d)]);
      return ticks;
    }
    const origin = runs[0].origin / 1000;
    let last = '';
    for (let k = Math.ceil((view.from + origin) / d); k * d - origin <= view.to; ++k) {
      const t = k * d - origin, date = day(runs[0], t);
      const label = d >= 86400 ? date : date !== last ? `${date} ${timeOfDay(runs[0], t, d)}` : timeOfDay(runs[0], t, d);
      ticks.push([t, label]);
      last = date;
    }
    return ticks;
  };
  const yTicks = axis => {
    if (axis.log) {
      const ticks = [], decades = Math.log10(axis.high / axis.low);
      const factors = decades > 3 ? [1] : decades > 1.3 ? [1, 3] : [1, 2, 5];
      const every = Math.max(1, Math.ceil(decades / (axis.height / 24)));
      for (let e = Math.floor(Math.log10(axis.low) / every) * every; e <= Math.ceil(Math.log10(axis.high)); e += every)
        for (const f of factors) { const v = f * 10 ** e; if (v >= axis.low && v <= axis.high) ticks.push(v); }
      return ticks;
    }
    const d = nice(axis.high - axis.low, Math.max(2, axis.height / 38)), ticks = [];
    for (let k = Math.ceil(axis.low / d - 1e-9); k * d <= axis.high + d * 1e-9; ++k) ticks.push(k * d);
    return ticks;
  };

  // ---- drawing -------------------------------------------------------------------------------------------------------------
  const finished = (made, attributes = {}, text) => {
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const element = (name, ...rest) => finished(document.createElementNS('http://www.w3.org/2000/svg', name), ...rest);
  const html = (name, ...rest) => finished(document.createElement(name), ...rest);
  // One that says more where a pointer rests on it.
  const titled = (name, attributes, title) => { const made = element(name, attributes); made.append(element('title', {}, title)); return made; };
  let width = 1000;
  const px = x => LEFT + (x - view.from) / (view.to - view.from) * (width - LEFT - RIGHT);
  const inView = (a, b = a) => b >= view.from && a <= view.to;
  // Far outside the picture, where a zoom leaves values of 1e38, paths take no numbers.
  const f1 = v => Math.min(Math.max(v, -1e6), 1e6).toFixed(1);

  // `points`: [x, y, group]; a new group or a gap (null) begins a new line, and a point alone is a dot. Steps have no gap between
  // starts.
  const line = (svg, points, axis, attributes) => {
    let d = '', alone = [], previous = null, run = 0;
    const finish = () => { if (run === 1) alone.push(previous); };
    for (const p of points) {
      if (p[1] === null) { finish(); run = 0; previous = null; continue; }
      const joins = previous && (p[2] === previous[2] || view.mode === 'step');
      if (!joins) { finish(); run = 0; }
      d += `${joins ? 'L' : 'M'}${f1(px(p[0]))} ${f1(axis.py(p[1]))}`;
      previous = p;
      ++run;
    }
    finish();
    if (d) svg.append(element('path', { ...attributes, d }));
    for (const p of alone)
      svg.append(element('circle', { cx: f1(px(p[0])), cy: f1(axis.py(p[1])), r: 2.2, fill: attributes.stroke || 'var(--bad)' }));
  };
  const band = (svg, rows, axis, fill) => {
    let group = [];
    const flush = () => {
      if (group.length > 1) {
        const at = (row, k) => `${f1(px(row[0]))} ${f1(axis.py(row[k]))}`;
        svg.append(element('path', { class: 'band', fill, stroke: fill,
          d: 'M' + group.map(r => at(r, 2)).join('L') + 'L' + group.reverse().map(r => at(r, 1)).join('L') + 'Z' }));
      }
      group = [];
    };
    for (const row of rows) {
      if (row[1] === null || (group.length && row[3] !== group[group.length - 1][3])) flush();
      if (row[1] !== null) group.push(row);
    }
    flush();
  };
  const KINDS = { done: 'var(--good)', requeue: 'var(--warn)', crash: 'var(--bad)' };
  const kindOf = start => start.running || start.status === 0 ? 'done' : start.status === 75 ? 'requeue' : 'crash';

  // What evaluations say about the curve of a panel.
  const evaluated = (run, panel) => run.evals[{ loss: 'v', accuracy: 'a' }[panel.key]] || [];
  const makeAxis = (panel, height) => {
    let low = Infinity, high = -Infinity;
    const see = v => { if (v !== null && v !== undefined) { low = Math.min(low, v); high = Math.max(high, v); } };
    for (const run of runs) {
      const seeCurve = (c, curve) => c.t0.forEach((_, i) => {
        const x = placeBucket(run, c, i);
        if (!inView(x)) return;
        see((curve.min || curve.mean)[i]);
        see((curve.max || curve.mean)[i]);
      });
      seeCurve(run.curves, run.curves[panel.key]);
      evaluated(run, panel).forEach((v, i) => { if (inView(place(run, run.evals.t[i], run.evals.s[i]))) see(v); });
      if (!many && panel.key === 'loss') seeCurve(run.lost, run.lost.loss);
    }
    if (!(low <= high) || (panel.zero && high <= 0)) [low, high] = [0, 1];
    const log = Boolean(panel.log) && low > 0 && high / low > 20;
    if (log) { low /= 1.1; high *= 1.1; } else {
      const margin = Math.max((high - low) * 0.06, Math.abs(high) * 1e-3, 1e-12);
      low = panel.zero ? 0 : low >= 0 ? Math.max(0, low - margin) : low - margin;
      high += margin;
    }
    const bottom = height - BOTTOM, span = bottom - TOP;
    const py = log ? v => bottom - Math.log(v / low) / Math.log(high / low) * span : v => bottom - (v - low) / (high - low) * span;
    return { low, high, log, py, bottom, height: span };
  };

  const frame = (svg, height) => {
    const bottom = height - BOTTOM;
    if (!many && view.mode === 'clock')
      for (const [a, b] of runs[0].gaps)
        if (inView(a, b)) {
          const from = px(Math.max(a, view.from)), to = px(Math.min(b, view.to));
          svg.append(titled('rect', { class: 'gap', x: f1(from), y: TOP, width: f1(Math.max(0, to - from)), height: bottom - TOP },
            `nothing ran for ${duration(b - a)}`));
        }
    let free = -Infinity;
    for (const [x, label] of xTicks(width - LEFT - RIGHT)) {
      svg.append(element('line', { class: 'grid', x1: f1(px(x)), x2: f1(px(x)), y1: TOP, y2: bottom }));
      // Labels neither leave the picture nor meet.
      const half = label.length * 3.3, at = Math.min(Math.max(px(x), half), width - half - 2);
      if (at - half < free) continue;
      svg.append(element('text', { x: f1(at), y: height - 5, 'text-anchor': 'middle' }, label));
      free = at + half + 8;
    }
  };
  const startMarks = (svg, height) => {
    if (many || runs[0].starts.length > 120) return;
    runs[0].starts.forEach((start, i) => {
      const x = place(runs[0], start.begin, Math.max(start.from, 0));
      if (i > 0 && inView(x))
        svg.append(element('line', { class: 'mark', x1: f1(px(x)), x2: f1(px(x)), y1: TOP, y2: height - BOTTOM,
          stroke: KINDS[kindOf(runs[0].starts[i - 1])] }));
    });
  };

  const drawCurves = (panel, svg) => {
    const axis = makeAxis(panel, panel.height);
    for (const v of yTicks(axis)) {
      const y = f1(axis.py(v));
      svg.append(element('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
      svg.append(element('text', { x: LEFT - 7, y: +y + 4, 'text-anchor': 'end' }, number(v)));
    }
    frame(svg, panel.height);
    startMarks(svg, panel.height);
    // Room for dots on the edge.
    const from = LEFT - 5, wide = width - LEFT - RIGHT + 10;
    const clip = element('svg', { x: from, y: 0, width: wide, height: panel.height, viewBox: `${from} 0 ${wide} ${panel.height}` });
    svg.append(clip);
    let drawn = 0;
    for (const run of runs) {
      const c = run.curves, curve = c[panel.key];
      const points = curve.mean.map((v, i) => [placeBucket(run, c, i), v, c.start[i]]);
      drawn += points.filter(p => p[1] !== null).length;
      if (panel.bars) {
        const worst = (curve.max || curve.mean).map((v, i) => [points[i][0], v]).filter(p => p[1] > 0);
        clip.append(element('path', { class: 'line bold', stroke: run.color,
          d: worst.map(p => `M${f1(px(p[0]))} ${f1(axis.bottom)}V${f1(axis.py(p[1]))}`).join('') }));
        continue;
      }
      if (curve.min && !(many && panel.smooth))
        band(clip, points.map((p, i) => [p[0], curve.min[i], curve.max[i], p[2]]), axis, run.color);
      if (!(many && panel.smooth))
        line(clip, points, axis, { class: panel.smooth ? 'line thin' : 'line', stroke: run.color });
      if (panel.smooth) line(clip, c.smooth.map((v, i) => [points[i][0], v, c.start[i]]), axis, { class: 'line bold', stroke: run.color });
      if (!many && panel.smooth)
        line(clip, run.lost.loss.mean.map((v, i) => [placeBucket(run, run.lost, i), v, run.lost.start[i]]), axis, { class: 'lostline' });
      evaluated(run, panel).forEach((v, i) => {
        const x = place(run, run.evals.t[i], run.evals.s[i]);
        if (v === null || !inView(x)) return;
        clip.append(titled('circle', { class: 'eval', cx: f1(px(x)), cy: f1(axis.py(v)), r: 4, fill: many ? run.color : 'var(--s1)' },
          `held-out ${panel.key} ${number(v)} after step ${run.evals.s[i]}`));
      });
    }
    if (panel.bars) drawCommits(clip, axis);
    svg.dataset.points = drawn;
    svg.dataset.low = axis.low;
    svg.dataset.high = axis.high;
  };
  // Ticks above the stalls they may have caused.
  const drawCommits = (svg, axis) => {
    for (const run of runs) {
      const d = run.commits.t.map((t, i) => place(run, t, run.commits.s[i])).filter(x => inView(x))
        .map(x => `M${f1(px(x))} ${axis.bottom}l-3.5 -7h7z`).join('');
      if (d) svg.append(element('path', { d, fill: many ? run.color : 'var(--s2)' }));
    }
  };

  const nodeRows = () => {
    const names = many ? [] : [...new Set(runs[0].starts.flatMap(start => start.nodes))];
    return { shown: names.slice(0, MAX_NODE_ROWS), more: Math.max(0, names.length - MAX_NODE_ROWS) };
  };
  const bar = (svg, x0, x1, y, attributes, title, label) => {
    if (!inView(x0, x1)) return;
    const from = px(Math.max(x0, view.from)), to = Math.max(px(Math.min(x1, view.to)), from + 1.5);
    svg.append(titled('rect', { x: f1(from), y, width: f1(to - from), height: ROW - 6, rx: 2, ...attributes }, title));
    if (label && label.length * 6.2 + 10 < to - from)
      svg.append(element('text', { class: 'on', x: f1(from + 6), y: y + 11, 'pointer-events': 'none' }, label));
  };
  const drawStarts = (panel, svg) => {
    frame(svg, panel.height);
    const rows = nodeRows();
    const name = (text, row) => {
      const made = element('text', { x: LEFT - 7, y: TOP + row * ROW + 12, 'text-anchor': 'end' }, text);
      svg.append(made);
      for (let cut = text.length - 1; cut > 0 && made.getComputedTextLength() > LEFT - 9; --cut) made.textContent = text.slice(0, cut) + '…';
      made.append(element('title', {}, text));
    };
    runs.forEach((run, r) => {
      name(many ? run.name : 'starts', r);
      for (const start of run.starts) {
        const label = `#${start.n}` + (start.ranks > 0 ? ` · ${counted(start.ranks, 'rank')}` : '');
        const title = `start ${start.n}: ${counted(start.ranks, 'rank')}${start.nodes.length ? ' on ' + start.nodes.join(' ') : ''}; ${start.words}`;
        const at = (t, step) => place(run, t, step);
        const begin = at(start.begin, Math.max(start.from, 0)), end = at(start.end, Math.max(start.to, start.from, 0));
        const train = start.train === null ? end : at(start.train, Math.max(start.from, 0));
        const fill = many ? run.color : 'var(--s0)', y = TOP + r * ROW + 2;
        bar(svg, begin, end, y, { fill, opacity: 0.35 }, title);
        if (start.train !== null) bar(svg, train, end, y, { fill, opacity: 0.95 }, title, label);
        if (!start.running && start.status !== 0 && inView(end)) {
          const x = f1(px(end));
          svg.append(element('path', { d: kindOf(start) === 'crash' ? `M${x - 3.5} ${y + 3.5}l7 7m0 -7l-7 7` : `M${x} ${y - 1}v16`,
            stroke: KINDS[kindOf(start)], 'stroke-width': 2.2, fill: 'none' }));
        }
      }
    });
    rows.shown.forEach((node, k) => {
      name(node, k + 1);
      for (const start of runs[0].starts) {
        if (!start.nodes.includes(node)) continue;
        const lost = start.lost.includes(node), y = TOP + (k + 1) * ROW + 2;
        const begin = place(runs[0], start.begin, Math.max(start.from, 0)), end = place(runs[0], start.end, Math.max(start.to, start.from, 0));
        bar(svg, begin, end, y + 2, { fill: 'var(--c9)', opacity: 0.6, height: ROW - 10 }, `${node} in start ${start.n}${lost ? '; lost' : ''}`);
        if (lost && inView(end)) {
          const x = Math.min(px(end), width - RIGHT - 4);
          svg.append(element('path', { d: `M${f1(x - 4)} ${y + 3}l8 8m0 -8l-8 8`, stroke: 'var(--bad)', 'stroke-width': 2.4, fill: 'none' }));
          if (x + 40 < width) svg.append(element('text', { x: f1(x + 7), y: y + 11, style: 'fill: var(--bad)' }, 'lost'));
        }
      }
    });
    if (rows.more) name(`+${rows.more} more`, rows.shown.length + 1);
    for (const event of runs.flatMap(run => many ? [] : run.events)) {
      const x = place(runs[0], event.t, Math.max(event.s, 0));
      if (!inView(x)) continue;
      svg.append(titled('path', { d: `M${f1(px(x))} ${panel.height - BOTTOM - 1}l-4 -8h8z`, fill: 'var(--warn)' },
        `${event.kind}${event.s >= 0 ? ' step ' + event.s : ''}: ${event.text}`));
    }
    svg.dataset.points = runs.reduce((n, run) => n + run.starts.length, 0);
  };

  // ---- panels --------------------------------------------------------------------------------------------------------------
  const rows = nodeRows();
  const hasEvents = !many && runs[0].events.length > 0;
  const PANELS = [
    { key: 'starts', title: many ? 'Starts' : rows.shown.length ? 'Starts and nodes' : 'Starts',
      height: TOP + BOTTOM + ROW * (runs.length + rows.shown.length + (rows.more ? 1 : 0)) + (hasEvents ? 10 : 0), draw: drawStarts },
    { key: 'loss', title: 'Loss', unit: 'nats a target', height: 270, smooth: true, draw: drawCurves },
    ...(runs.some(run => run.curves.accuracy)
      ? [{ key: 'accuracy', title: 'Accuracy', unit: 'share of right answers', height: 150, draw: drawCurves }] : []),
    { key: 'lr', title: 'Learning rate', height: 110, zero: true, draw: drawCurves },
    { key: 'grad', title: 'Gradient norm', unit: 'before clipping', height: 150, log: true, draw: drawCurves },
    { key: 'speed', title: 'Throughput', unit: 'tokens/s', height: 150, zero: true, draw: drawCurves },
    { key: 'stall', title: 'Checkpoints', unit: 'ms that a step waited; triangles are commits', height: 120, zero: true, bars: true, draw: drawCurves },
  ];
  const describe = panel => {
    if (panel.key === 'starts')
      return runs.map(run => `${run.name}: ${run.starts.map(s => `start ${s.n}, ${counted(s.ranks, 'rank')}, ${s.words}`).slice(0, 20).join('; ')}.`).join(' ');
    return runs.map(run => {
      const curve = run.curves[panel.key], values = curve.mean.filter(v => v !== null);
      if (!values.length) return `${run.name}: no values.`;
      const low = Math.min(...(curve.min || curve.mean).filter(v => v !== null)), high = Math.max(...(curve.max || curve.mean).filter(v => v !== null));
      return `${run.name}: from ${number(values[0])} to ${number(values[values.length - 1])}, between ${number(low)} and ${number(high)}` +
        (curve.not_finite ? `, ${counted(curve.not_finite, 'step')} without a finite value.` : '.');
    }).join(' ');
  };
  for (const panel of PANELS) {
    const box = html('div', { class: 'panel', 'data-panel': panel.key });
    const title = html('h3', {}, panel.title);
    if (panel.unit) { title.append(' '); title.append(html('small', {}, panel.unit)); }
    panel.legend = html('span', { class: 'legend' });
    panel.box = html('div');
    box.append(title, panel.legend, panel.box);
    charts.append(box);
  }

  // The bucket of `run` nearest to the cursor.
  const nearest = run => {
    const c = run.curves;
    if (view.cursor === null || !c.t0.length) return -1;
    const distance = i => Math.abs(placeBucket(run, c, i) - view.cursor);
    return c.t0.reduce((best, _, i) => distance(i) < distance(best) ? i : best, 0);
  };
  const entry = (legend, color, label, value) => {
    const item = html('span');
    if (color) item.append(html('i', { class: 'swatch', style: `color: ${color}` }));
    item.append(label);
    if (value !== undefined) { item.append(' '); item.append(html('b', {}, value)); }
    legend.append(item);
  };
  const fillLegend = (panel, at) => {
    const { legend } = panel;
    legend.textContent = '';
    runs.forEach((run, r) => {
      const i = at[r], c = run.curves;
      if (panel.key === 'starts') {
        if (many) { entry(legend, run.color, run.name); return; }
        const start = i >= 0 && run.starts.find(s => s.n === c.start[i]);
        if (start) {
          entry(legend, '', `start ${start.n}`, `${counted(start.ranks, 'rank')}${start.nodes.length ? ' on ' + start.nodes.slice(0, 8).join(' ') : ''}`);
          entry(legend, '', 'step', c.s0[i] === c.s1[i] ? `${c.s1[i]}` : `${c.s0[i]} to ${c.s1[i]}`);
          entry(legend, '', '', `${day(run, c.t1[i])} ${timeOfDay(run, c.t1[i])} UTC`);
        } else {
          entry(legend, KINDS.crash, 'failed');
          entry(legend, KINDS.requeue, 'stopped on request');
          if (hasEvents) entry(legend, 'var(--warn)', 'incidents below');
        }
        return;
      }
      const curve = c[panel.key];
      const value = i < 0 ? undefined : panel.key === 'loss' && curve.mean[i] === null ? 'nan' : number(curve.mean[i]);
      const extremes = i >= 0 && curve.min && curve.min[i] !== curve.max[i] ? ` (${number(curve.min[i])} to ${number(curve.max[i])})` : '';
      if (many) {
        entry(legend, run.color, run.name, i < 0 ? undefined : panel.smooth ? number(c.smooth[i]) : panel.bars ? number((curve.max || curve.mean)[i]) : value);
      } else if (panel.smooth) {
        entry(legend, run.color, 'smoothed', i < 0 ? undefined : number(c.smooth[i]));
        entry(legend, '', curve.min ? 'mean and extremes' : 'each step', i < 0 ? undefined : value + extremes);
        if (run.evals.v.length) {
          const before = i < 0 ? -1 : run.evals.s.filter(s => s <= c.s1[i]).length - 1;
          entry(legend, 'var(--s1)', 'held-out', before < 0 ? undefined : number(run.evals.v[before]));
        }
        if (run.lost.t0.length) entry(legend, 'var(--bad)', 'lost in a crash');
      } else if (i >= 0) {
        entry(legend, run.color, panel.key === 'accuracy' ? 'training' : '', panel.bars ? number((curve.max || curve.mean)[i]) : value + extremes);
      }
      if (!many && panel.key === 'accuracy' && evaluated(run, panel).some(v => v !== null)) entry(legend, 'var(--s1)', 'held-out');
      if (!many && curve.not_finite && i < 0 && panel.key !== 'accuracy') entry(legend, '', `not finite, not drawn: ${curve.not_finite}`);
    });
  };

  const drawCursor = () => {
    const at = runs.map(nearest);
    for (const panel of PANELS) {
      panel.svg.querySelectorAll('.cursor, .brush').forEach(old => old.remove());
      const add = (name, attributes) => panel.svg.append(element(name, { y: TOP, 'pointer-events': 'none', ...attributes }));
      if (view.brush && view.brush[0] !== view.brush[1]) {
        const [a, b] = view.brush.map(px).sort((p, q) => p - q);
        add('rect', { class: 'brush', x: f1(a), width: f1(b - a), height: panel.height - TOP - BOTTOM });
      }
      if (view.cursor !== null && inView(view.cursor))
        add('line', { class: 'cursor', x1: f1(px(view.cursor)), x2: f1(px(view.cursor)), y1: TOP, y2: panel.height - BOTTOM });
      fillLegend(panel, at);
    }
    return at;
  };
  const draw = () => {
    width = Math.max(320, charts.clientWidth);
    for (const panel of PANELS) {
      const id = `title-${panel.key}`;
      panel.svg = element('svg', { viewBox: `0 0 ${width} ${panel.height}`, role: 'img', 'aria-labelledby': `${id} ${id}-d`, 'data-curve': panel.key });
      panel.svg.append(element('title', { id }, panel.title + (panel.unit ? `, ${panel.unit}` : '')));
      panel.svg.append(element('desc', { id: `${id}-d` }, describe(panel)));
      // In its place before it is drawn, so that text can be measured.
      panel.box.replaceChildren(panel.svg);
      panel.draw(panel, panel.svg);
    }
    drawCursor();
    const [low, high] = fullRange();
    reset.disabled = view.from <= low && view.to >= high;
  };
  const show = (from, to) => {
    const [low, high] = fullRange(), least = (high - low) / 5000;
    view.from = Math.max(low, Math.min(from, high - least));
    view.to = Math.min(high, Math.max(to, view.from + least));
    draw();
  };
  const speak = at => {
    spoken.textContent = runs.map((run, r) => {
      const i = at[r], c = run.curves;
      if (i < 0) return '';
      return `${many ? run.name + ', ' : ''}step ${c.s1[i]}: loss ${number(c.smooth[i])}, gradient norm ${number(c.grad.mean[i])}, ` +
        `${number(c.speed.mean[i])} tokens a second, learning rate ${number(c.lr.mean[i])}, start ${c.start[i]}`;
    }).join('. ');
  };

  // ---- controls ------------------------------------------------------------------------------------------------------------
  const controls = document.getElementById('controls');
  const choice = html('fieldset', { 'aria-label': 'horizontal axis' });
  for (const [mode, label] of MODES) {
    const box = html('label', {}, '');
    const input = html('input', { type: 'radio', name: 'mode', value: mode, class: 'unseen' });
    input.checked = mode === view.mode;
    input.addEventListener('change', () => { view.mode = mode; view.cursor = null; show(...fullRange()); });
    box.append(input, label);
    choice.append(box);
  }
  const reset = html('button', { type: 'button' }, 'Show all');
  reset.addEventListener('click', () => show(...fullRange()));
  controls.append(choice, reset);

  const atPointer = event => {
    const box = PANELS[0].svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width;
    return Math.min(view.to, Math.max(view.from, view.from + (x - LEFT) / (width - LEFT - RIGHT) * (view.to - view.from)));
  };
  charts.addEventListener('pointerdown', event => { if (event.button === 0 && event.target.closest('svg')) view.brush = [atPointer(event), atPointer(event)]; });
  charts.addEventListener('pointermove', event => {
    view.cursor = atPointer(event);
    if (view.brush) view.brush[1] = view.cursor;
    drawCursor();
  });
  window.addEventListener('pointerup', () => {
    if (!view.brush) return;
    const [a, b] = view.brush.sort((p, q) => p - q);
    view.brush = null;
    // A click is no selection.
    if (px(b) - px(a) > 6) show(a, b); else drawCursor();
  });
  charts.addEventListener('pointerleave', () => { if (!view.brush) { view.cursor = null; drawCursor(); } });
  charts.addEventListener('dblclick', () => show(...fullRange()));
  charts.addEventListener('keydown', event => {
    const span = view.to - view.from, middle = view.cursor === null ? (view.from + view.to) / 2 : view.cursor;
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) view.cursor = middle + move * span / 200 * (event.shiftKey ? 10 : 1);
    else if (event.key === 'Home') view.cursor = view.from;
    else if (event.key === 'End') view.cursor = view.to;
    else if (event.key === '+' || event.key === '=') show(middle - span / 4, middle + span / 4);
    else if (event.key === '-') show(middle - span, middle + span);
    else if (event.key === 'Escape') { view.cursor = null; show(...fullRange()); } else return;
    event.preventDefault();
    if (view.cursor !== null) view.cursor = Math.min(view.to, Math.max(view.from, view.cursor));
    speak(drawCursor());
  });
  let drawnWidth = 0;
  new ResizeObserver(() => {
    if (charts.clientWidth !== drawnWidth) { drawnWidth = charts.clientWidth; draw(); }
  }).observe(charts);
  show(...fullRange());
  document.documentElement.dataset.drawn = PANELS.map(panel => panel.key).join(' ');
})();
