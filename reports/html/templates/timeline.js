"use strict";

// The time line: lanes of events on a canvas. Times are ns after the step's start.
globalThis.timeline = (() => {
  const figure = document.querySelector("figure.timeline");
  const data = JSON.parse(figure.querySelector("script").textContent);
  const { labels, looks } = data;
  const canvas = figure.querySelector("canvas.lanes");
  const context = canvas.getContext("2d");
  const HEAD = 24;
  const GROUP = 20;
  // About the width of a letter.
  const LETTER = 6.5;
  const HEIGHTS = { stream: 26, idle: 22, call: 20 };
  const narrow = matchMedia("(max-width: 620px)");
  const gutter = () => (narrow.matches ? 86 : 170);
  // What is picked is one piece, what is selected are labels; `frames` counts how often it was drawn.
  const state = { step: null, view: null, picked: null, selection: null, frames: 0 };
  let size = { width: 0, height: 0 };
  let colours = {};
  let waiting = 0;

  // Lanes with their places from top to bottom; ends ascend as starts do.
  function prepare(step) {
    let y = HEAD;
    let group = null;
    const lanes = step.lanes.map((lane, number) => {
      const heading = lane.group === group ? null : y + GROUP - 6;
      if (heading !== null) y += GROUP;
      group = lane.group;
      const height = HEIGHTS[lane.kind] ?? 18;
      const ends = lane.starts.map((start, index) => start + lane.lengths[index]);
      const placed = { ...lane, number, ends, y, height, heading };
      y += height + 2;
      return placed;
    });
    const activities = step.activities.map((activity) => {
      const heading = activity.group === group ? null : y + GROUP - 6;
      if (heading !== null) y += GROUP;
      group = activity.group;
      const ends = activity.starts.map((start, index) => start + activity.lengths[index]);
      const placed = { ...activity, ends, y, height: 30, heading };
      y += placed.height + 4;
      return placed;
    });
    return { ...step, lanes, activities, height: y + 4 };
  }
  const steps = data.steps.map(prepare);

  // The first index whose value is not below `time`.
  function search(times, time) {
    let low = 0;
    let high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function duration(ns, digits = 3) {
    const [factor, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]
      .find(([least]) => Math.abs(ns) >= least * 0.9995) ?? [1, "ns"];
    const value = Number((ns / factor).toPrecision(digits));
    return `${unit === "ns" ? Math.round(value) : value} ${unit}`;
  }

  const X = (time) =>
    gutter() + ((time - state.view.from) / (state.view.to - state.view.from)) * (size.width - gutter());
  const timeAt = (x) =>
    state.view.from + ((x - gutter()) / (size.width - gutter())) * (state.view.to - state.view.from);

  // Colour is never the only mark: each class has a pattern of its own.
  function pattern(look, colour) {
    const { side, path, solid, stroke_width: width } = looks[look];
    if (!path) return colour;
    const tile = Object.assign(document.createElement("canvas"), { width: side, height: side });
    const ink = tile.getContext("2d");
    // What is no work has a pale ground.
    [ink.fillStyle, ink.strokeStyle] = solid ? [colour, colours.page] : [colours.faint, colour];
    ink.lineWidth = width;
    ink.fillRect(0, 0, side, side);
    ink.stroke(new Path2D(path));
    return context.createPattern(tile, "repeat");
  }

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    colours = Object.fromEntries(
      ["page", "surface", "ink", "soft", "faint"].map((name) => [name, of(name)]),
    );
    colours.font = getComputedStyle(document.body).fontFamily;
    colours.fills = {};
    colours.plain = {};
    for (const look of Object.keys(looks)) {
      colours.plain[look] = of(`class-${look.replaceAll(" ", "-")}`);
      colours.fills[look] = pattern(look, colours.plain[look]);
    }
  }

  const matches = (label) => !state.selection || state.selection.has(label);
  const isPicked = (lane, index) => state.picked?.lane === lane && state.picked.index === index;

  function drawPiece(lane, from, to, label, count, name, waits = from) {
    const { look } = labels[label];
    const x = Math.max(from, gutter() - 4);
    const width = Math.min(to, size.width + 4) - x;
    context.globalAlpha = matches(label) ? 1 : 0.22;
    // A narrow piece has no room for a pattern, nor for the frame of what has no class.
    const [fill, plain] = look ? [colours.fills[look], colours.plain[look]] : [colours.surface, colours.soft];
    context.fillStyle = width > 4 ? fill : plain;
    context.fillRect(x, lane.y, Math.max(width, 1), lane.height);
    if (waits > x) {
      context.fillStyle = colours.fills["other rank"];
      context.fillRect(x, lane.y, Math.min(waits - x, width), lane.height);
    }
    if (!look && width > 4) {
      context.strokeStyle = colours.soft;
      context.strokeRect(x + 0.5, lane.y + 0.5, width - 1, lane.height - 1);
    }
    context.globalAlpha = 1;
    if (width > 30) drawName(lane, x, width, count > 1 ? `${count} × ${name}` : name, label);
  }

  // Behind it the ground is plain, so that it can be read on any pattern.
  function drawName(lane, x, width, text, label) {
    const room = Math.floor((width - 8) / LETTER);
    const shown = text.length <= room ? text : `${text.slice(0, room - 1)}…`;
    const most = width - 8;
    if (labels[label].look) {
      context.fillStyle = colours.page;
      const plate = Math.min(context.measureText(shown).width, most) + 4;
      context.fillRect(x + 2, lane.y + 3, plate, lane.height - 6);
    }
    context.fillStyle = matches(label) ? colours.ink : colours.soft;
    context.fillText(shown, x + 4, lane.y + lane.height / 2 + 4, most);
  }

  // Pieces narrower than a pixel that lie together are one mark, of the class of the longest.
  function drawLane(lane) {
    const { from, to } = state.view;
    let run = null;
    const flush = () => {
      if (run) drawPiece(lane, run.x, run.end, run.label, 1, "");
      run = null;
    };
    for (let at = search(lane.ends, from); at < lane.starts.length && lane.starts[at] < to; at += 1) {
      const x = X(lane.starts[at]);
      const end = X(lane.ends[at]);
      const label = lane.labels[at];
      if (end - x >= 1 || isPicked(lane, at)) {
        flush();
        const waits = lane.waited?.[at] ? X(lane.starts[at] + lane.waited[at]) : x;
        drawPiece(lane, x, end, label, lane.counts?.[at] ?? 1, labels[label].name, waits);
      } else if (run && end - run.x < 2 && matches(run.label) === matches(label)) {
        run.end = end;
        if (lane.lengths[at] > run.longest) Object.assign(run, { label, longest: lane.lengths[at] });
      } else {
        flush();
        run = { x, end, label, longest: lane.lengths[at] };
      }
    }
    flush();
  }

  // Bars from the bottom of a frame, whose top is 100 %.
  function drawActivity({ starts, ends, percents, y, height }) {
    const { from, to } = state.view;
    context.fillStyle = colours.faint;
    context.fillRect(gutter(), y, size.width, 1);
    context.fillRect(gutter(), y + height, size.width, 1);
    context.fillStyle = colours.soft;
    for (let at = search(ends, from); at < starts.length && starts[at] < to; at += 1) {
      const [x, tall] = [X(starts[at]), (height * Math.min(percents[at], 100)) / 100];
      context.fillRect(x, y + height - tall, Math.max(X(ends[at]) - x, 0.5), tall);
    }
  }

  // From launches to their work: of what is picked, on either side.
  function arrows() {
    if (!state.picked) return [];
    const { lane, index } = state.picked;
    if (lane.kind === "stream") {
      const from = state.step.lanes[lane.launched_from?.[index]];
      return from ? [{ from, time: lane.launched[index], lane, index }] : [];
    }
    const found = [];
    for (const work of lane.kind === "call" ? state.step.lanes : []) {
      work.launched?.forEach((time, at) => {
        const within = time !== null && time >= lane.starts[index] && time < lane.ends[index];
        if (within && work.launched_from[at] === lane.number) found.push({ from: lane, time, lane: work, index: at });
      });
    }
    return found;
  }

  function drawArrows() {
    context.strokeStyle = colours.ink;
    context.lineWidth = 1.5;
    context.beginPath();
    for (const { from, time, lane, index } of arrows().slice(0, 500)) {
      const [x, y, toX] = [X(time), from.y + from.height / 2, X(lane.starts[index])];
      context.moveTo(x, y);
      context.bezierCurveTo(x, (y + lane.y) / 2, toX, (y + lane.y) / 2, toX, lane.y);
    }
    context.stroke();
    context.lineWidth = 1;
    if (!state.picked) return;
    const { lane, index } = state.picked;
    const x = X(lane.starts[index]);
    context.lineWidth = 2;
    context.strokeRect(x - 1, lane.y - 1, Math.max(X(lane.ends[index]) - x, 1) + 2, lane.height + 2);
    context.lineWidth = 1;
  }

  function drawAxis() {
    const { from, to } = state.view;
    const rough = (to - from) / Math.max(2, (size.width - gutter()) / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const digits = Math.max(3, Math.ceil(Math.log10(Math.max(Math.abs(from), Math.abs(to)) / step)) + 1);
    context.textAlign = "center";
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const x = X(at);
      context.fillStyle = colours.faint;
      context.fillRect(x, HEAD - 4, 1, size.height);
      context.fillStyle = colours.soft;
      const text = Math.abs(at) < step / 2 ? "0" : duration(at, digits);
      if (x > gutter() + 20 && x < size.width - 20) context.fillText(text, x, 14);
    }
    context.textAlign = "left";
  }

  function draw() {
    waiting = 0;
    state.frames += 1;
    const { step } = state;
    const scale = devicePixelRatio || 1;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    context.font = `11.5px ${colours.font}`;
    context.save();
    context.beginPath();
    context.rect(gutter(), 0, size.width - gutter(), size.height);
    context.clip();
    drawAxis();
    for (const lane of step.lanes) drawLane(lane);
    step.activities.forEach(drawActivity);
    // The step itself lies between two lines.
    context.fillStyle = colours.ink;
    for (const edge of [0, step.length]) context.fillRect(X(edge) - 0.5, HEAD - 4, 1, size.height);
    drawArrows();
    context.restore();
    const most = Math.floor((gutter() - 10) / LETTER);
    for (const { name, group, heading, y, height } of [...step.lanes, ...step.activities]) {
      const clip = (text) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
      context.fillStyle = colours.ink;
      if (heading !== null) {
        context.font = `600 12px ${colours.font}`;
        context.fillText(group, 0, heading);
        context.font = `11.5px ${colours.font}`;
      }
      context.fillStyle = colours.soft;
      context.fillText(clip(name), 8, y + height / 2 + 4);
    }
  }
  const redraw = () => {
    if (size.width) waiting ||= requestAnimationFrame(draw);
  };

  // Width and colours are known once the page is laid out, which nothing here hurries.
  function fit(width) {
    if (width && !colours.page) readColours();
    size = { width, height: state.step.height };
    const scale = devicePixelRatio || 1;
    canvas.style.height = `${size.height}px`;
    Object.assign(canvas, { width: width * scale, height: size.height * scale });
    redraw();
  }

  // Never beyond what the step's lanes hold, nor closer than to some nanoseconds.
  function show(from, to) {
    const first = -state.step.lead;
    const whole = Math.max(state.step.length - first, 1);
    const length = Math.min(Math.max(to - from, Math.min(20, whole)), whole);
    const begin = Math.min(Math.max(from, first), first + whole - length);
    state.view = { from: begin, to: begin + length };
    redraw();
  }
  function zoom(factor, at = (state.view.from + state.view.to) / 2) {
    show(at - (at - state.view.from) * factor, at + (state.view.to - at) * factor);
  }
  const pan = (share) => {
    const by = share * (state.view.to - state.view.from);
    show(state.view.from + by, state.view.to + by);
  };
  const showAll = () => show(-state.step.lead, state.step.length);

  function choose(number) {
    state.step = steps[number];
    state.picked = null;
    showAll();
    fit(size.width);
  }

  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== size.width) fit(contentRect.width);
  }).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    redraw();
  });
  narrow.addEventListener("change", redraw);
  return {
    figure, canvas, labels, looks, state, arrows, choose, duration, gutter, pan, redraw, search,
    show, showAll, timeAt, zoom, X,
  };
})();
