"use strict";

// What a reader does with the time line: points, zooms, pans, and selects with pointer and keys.
(() => {
  const line = globalThis.timeline;
  const { figure, canvas, labels, looks, state, duration } = line;
  const card = figure.querySelector(".card");
  const told = figure.querySelector(".told");
  const note = figure.querySelector(".chosen");
  const percent = (share) => `${Number((100 * share).toPrecision(3))}%`;
  const countOf = (lane, index) => lane.counts?.[index] ?? 1;

  const rowAt = (rows, y) => rows.find((row) => y >= row.y - 1 && y <= row.y + row.height + 1);

  // The piece of a lane at `time`, or the nearest one within `slack`.
  function pieceAt(lane, time, slack) {
    const at = line.search(lane.ends, time);
    const distance = (index) =>
      index < 0 || index >= lane.starts.length
        ? Infinity
        : Math.max(lane.starts[index] - time, time - lane.ends[index], 0);
    const index = [at, at - 1].sort((a, b) => distance(a) - distance(b))[0];
    return distance(index) <= slack ? { lane, index } : null;
  }

  function factsOf({ lane, index }) {
    const label = labels[lane.labels[index]];
    const [start, length, count] = [lane.starts[index], lane.lengths[index], countOf(lane, index)];
    const share = state.step.length ? `, ${percent(length / state.step.length)} of the step` : "";
    const launched = lane.launched?.[index] ?? null;
    const reached = count === 1 && label.roof_ns && length ? label.roof_ns / length : null;
    return {
      title: count > 1 ? `${count} pieces, mostly ${label.name}` : label.name,
      facts: [
        ["On", [lane.name, lane.group].filter(Boolean).join(", ")],
        ["Begins", `${duration(start, 4)} after the step does`],
        ["Lasts", `${duration(length)}${share}`],
        ["Busy", count > 1 ? duration(lane.busy[index]) : ""],
        ["Waits", lane.waited?.[index] ? `${duration(lane.waited[index])} for other ranks` : ""],
        ["Launched", launched === null ? "" : `${duration(start - launched)} before it begins`],
        ["Roof", reached === null ? "" : `${percent(reached)} of ${label.roof}`],
        ["Class", label.look && `${label.look}: ${looks[label.look].meaning}`],
        ["Operator", label.operator],
        ["Phase", label.phase],
        ["Module", label.kind === "module" ? "" : label.module],
        ["Line", label.place],
        ["Also", label.detail],
        ["Recorded", label.recorded],
      ],
    };
  }

  // What nothing runs in, with the causes of those parts in which no other stream works either.
  function factsOfGap(lane, time) {
    const next = line.search(lane.starts, time);
    const begin = lane.ends[next - 1] ?? -state.step.lead;
    const end = lane.starts[next] ?? state.step.length;
    const causes = new Map();
    let known = 0;
    for (const idle of state.step.lanes.filter((other) => other.kind === "idle")) {
      for (let at = line.search(idle.ends, begin); idle.starts[at] < end; at += 1) {
        const part = Math.min(idle.ends[at], end) - Math.max(idle.starts[at], begin);
        const { look, name } = labels[idle.labels[at]];
        if (part > 0) causes.set(`${look}: ${name}`, (causes.get(`${look}: ${name}`) ?? 0) + part);
        known += Math.max(part, 0);
      }
    }
    const largest = [...causes].sort(([, a], [, b]) => b - a).slice(0, 4);
    const within = Math.min(end, state.step.length) - Math.max(begin, 0);
    const others = known && within - known > 0 ? within - known : 0;
    return {
      title: `No work on ${lane.name}`,
      facts: [
        ["Lasts", duration(end - begin)],
        ...largest.map(([cause, ns], at) => [at ? "" : "Why", `${duration(ns)} ${cause}`]),
        ["", others ? `${duration(others)} another stream or device works` : ""],
      ],
    };
  }

  // The window of a counter at `time`; null where none is.
  function factsOfActivity({ name, group, starts, ends, lengths, percents }, time) {
    const at = line.search(ends, time);
    if (at === starts.length || starts[at] > time) return null;
    return {
      title: name,
      facts: [
        ["On", group],
        ["Begins", `${duration(starts[at], 4)} after the step does`],
        ["Lasts", duration(lengths[at])],
        ["Active", `${percents[at]}%`],
      ],
    };
  }

  function fill({ title, facts }) {
    const head = document.createElement("p");
    head.className = "title";
    head.textContent = title;
    const list = document.createElement("dl");
    for (const [term, text] of facts) {
      if (!text) continue;
      list.append(
        Object.assign(document.createElement("dt"), { textContent: term }),
        Object.assign(document.createElement("dd"), { textContent: text }),
      );
    }
    card.replaceChildren(head, list);
    card.hidden = false;
  }

  function place(x, y) {
    const box = card.getBoundingClientRect();
    const left = x + 18 + box.width < innerWidth ? x + 18 : x - 18 - box.width;
    card.style.left = `${Math.max(8, left)}px`;
    card.style.top = `${Math.max(8, Math.min(y + 14, innerHeight - box.height - 8))}px`;
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const inside = x >= line.gutter();
    const lane = inside ? rowAt(state.step.lanes, y) : undefined;
    const activity = inside ? rowAt(state.step.activities, y) : undefined;
    const time = line.timeAt(x);
    return { lane, activity, time, piece: lane ? pieceAt(lane, time, 2 * (line.timeAt(1) - line.timeAt(0))) : null };
  }

  function point(event) {
    const { lane, activity, time, piece } = under(event);
    const counted = activity && factsOfActivity(activity, time);
    if (piece) fill(factsOf(piece));
    else if (counted) fill(counted);
    else if (lane?.kind === "stream") fill(factsOfGap(lane, time));
    else card.hidden = true;
    if (!card.hidden) place(event.clientX, event.clientY);
  }

  // A row has the name by which it is selected.
  const nameOf = (row) => document.getElementById(row)?.dataset.key;

  // Tables and plots of the page select the same thing.
  function subjectOf({ lane, index }) {
    const label = labels[lane.labels[index]];
    const named = label.recorded ?? label.name;
    if (lane.kind === "stream") return { kind: "kernel", key: nameOf(label.row) ?? named, row: label.row };
    if (lane.kind === "module") return { kind: "module", key: label.folded ?? named };
    return ["operator", "range"].includes(lane.kind) ? { kind: lane.kind, key: named } : null;
  }

  function pick(piece) {
    state.picked = piece;
    const subject = piece && subjectOf(piece);
    // The reader stays where the time line is.
    const detail = subject && { ...subject, stay: true };
    document.dispatchEvent(new CustomEvent("gpuprof:select", { detail }));
    state.picked = piece;
    line.redraw();
  }

  const belongsTo = {
    kernel: (label, { key, row }) => (row ? label.row === row : (label.key ?? label.recorded ?? label.name) === key),
    operator: (label, { key }) =>
      label.kind === "operator" ? (label.recorded ?? label.name) === key : label.operator === key,
    module: (label, { key }) => label.folded === key || label.folded?.startsWith(`${key}.`),
    range: (label, { key }) => label.kind === "range" && (label.recorded ?? label.name) === key,
  };

  function select(detail) {
    const belongs = detail && belongsTo[detail.kind];
    const found = belongs
      ? labels.flatMap((label, number) => (belongs(label, detail) ? [number] : []))
      : [];
    state.selection = found.length ? new Set(found) : null;
    state.picked = null;
    tellSelection(detail);
    line.redraw();
  }

  function tellSelection(detail) {
    let [count, busy] = [0, 0];
    for (const lane of state.selection ? state.step.lanes : []) {
      if (lane.kind !== "stream") continue;
      lane.labels.forEach((label, index) => {
        if (!state.selection.has(label)) return;
        count += countOf(lane, index);
        busy += lane.busy?.[index] ?? lane.lengths[index];
      });
    }
    note.textContent = count ? `Selected: ${detail.key}, ${count} pieces of device work, ${duration(busy)}. ` : "";
    if (!count || !detail.row) return;
    note.append(Object.assign(document.createElement("a"), { href: `#${detail.row}`, textContent: "All its figures" }));
  }

  // The piece that keys have reached, in view and with its figures.
  function reach(piece) {
    const { lane, index } = piece;
    const [start, end] = [lane.starts[index], lane.ends[index]];
    const { from, to } = state.view;
    if (end < from || start > to) line.show((start + end - (to - from)) / 2, (start + end + (to - from)) / 2);
    state.picked = piece;
    line.redraw();
    const shown = factsOf(piece);
    fill(shown);
    told.textContent = [shown.title, ...shown.facts.filter(([, text]) => text).map((fact) => fact.join(" "))].join(". ");
    const box = canvas.getBoundingClientRect();
    place(box.left + Math.max(line.X(start), line.gutter()), box.top + lane.y + lane.height);
  }

  function step(lanes, pieces) {
    const all = state.step.lanes;
    const middle = (state.view.from + state.view.to) / 2;
    const { lane, index } = state.picked ?? { lane: all.find(({ kind }) => kind === "stream") ?? all[0], index: null };
    if (index === null || lanes) {
      const other = all[Math.min(Math.max(lane.number + (index === null ? 0 : lanes), 0), all.length - 1)];
      const time = index === null ? middle : (lane.starts[index] + lane.ends[index]) / 2;
      return reach(pieceAt(other, time, Infinity));
    }
    reach({ lane, index: Math.min(Math.max(index + pieces, 0), lane.starts.length - 1) });
  }

  const keys = {
    "+": () => line.zoom(1 / 1.5), "=": () => line.zoom(1 / 1.5), "-": () => line.zoom(1.5),
    Home: line.showAll,
    ArrowLeft: (event) => (event.shiftKey ? step(0, -1) : line.pan(-0.2)),
    ArrowRight: (event) => (event.shiftKey ? step(0, 1) : line.pan(0.2)),
    ArrowUp: () => step(-1, 0),
    ArrowDown: () => step(1, 0),
    Enter: () => state.picked && pick(state.picked),
    Escape: () => { card.hidden = true; pick(null); },
  };
  canvas.addEventListener("keydown", (event) => {
    const action = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  });

  // Without a click before, the wheel scrolls the page.
  canvas.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!sideways && !event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    if (sideways) line.pan(event.deltaX / 600);
    else line.zoom(1.0015 ** event.deltaY, under(event).time);
  }, { passive: false });

  // Of each finger, or the mouse, where it is; two of them zoom.
  const held = new Map();
  let moved = 0;
  const spread = () => {
    const [a, b] = [...held.values()];
    return Math.max(Math.abs(a - b), 10);
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    held.set(event.pointerId, event.clientX);
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return point(event);
    const before = held.size === 2 ? spread() : held.get(event.pointerId);
    moved += Math.abs(event.clientX - held.get(event.pointerId));
    held.set(event.pointerId, event.clientX);
    if (held.size === 2) return line.zoom(before / spread(), under(event).time);
    if (moved <= 3) return;
    card.hidden = true;
    line.pan((before - event.clientX) / (canvas.clientWidth - line.gutter()));
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!held.delete(event.pointerId) || moved > 3) return;
    pick(under(event).piece);
    // A finger does not point before it touches.
    if (event.pointerType === "touch") point(event);
  });
  canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") card.hidden = true;
  });
  canvas.addEventListener("blur", () => { card.hidden = true; });

  const buttons = [...figure.querySelectorAll("[data-step]")];
  function choose(number) {
    line.choose(number);
    card.hidden = true;
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(at === number)));
  }
  buttons.forEach((button, number) => button.addEventListener("click", () => choose(number)));
  const actions = { in: keys["+"], out: keys["-"], all: keys.Home };
  for (const button of figure.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", actions[button.dataset.zoom]);
  }
  document.addEventListener("gpuprof:select", ({ detail }) => select(detail));
  figure.classList.add("drawn");
  choose(0);
})();
