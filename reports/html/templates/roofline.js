"use strict";

// The roofline. Positions and sizes come from the page's data; figures from the table's rows.
globalThis.plotsDrawn = (async () => {
  const source = document.getElementById("chart-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const chart = document.getElementById("chart");
  const card = document.getElementById("card");
  const allCeilings = document.getElementById("all-ceilings");
  const buttons = [...document.querySelectorAll("[data-level]")];
  const allPoints = document.getElementById("all-points");
  const narrow = matchMedia("(max-width: 1000px)");
  const phone = matchMedia("screen and (max-width: 620px)");
  const print = matchMedia("print");
  const touch = matchMedia("(pointer: coarse)");
  const isNarrow = () => narrow.matches || print.matches;
  let current = data.levels[0];

  const shownCeilings = () =>
    data.ceilings.filter((line) => line.used || !allCeilings || allCeilings.checked);

  function colours() {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue(`--${name}`).trim();
  }

  function ceilingTrace(line, colour) {
    return {
      type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false,
      x: [line.x0, line.x1], y: [line.y0, line.y1],
      line: {
        color: colour(line.is_roof ? "ink" : "soft"),
        width: line.is_roof && line.used ? 1.8 : 1.1,
        dash: line.clock_mhz ? "2px,3px" : line.source === "measured" ? "6px,4px" : "solid",
      },
      opacity: line.used ? 1 : 0.55,
    };
  }

  function pointTrace(kind, colour) {
    const points = current.points.filter((point) => point.kind === kind);
    return {
      type: "scatter", mode: "markers", name: kind, hoverinfo: "none",
      x: points.map((point) => point.x),
      y: points.map((point) => point.y),
      customdata: points.map((point) => point.row),
      marker: {
        symbol: data.marks[kind], size: points.map((point) => point.size),
        color: colour(`class-${kind.replaceAll(" ", "-")}`), opacity: 0.72, line: { color: colour("page"), width: 1 },
      },
    };
  }

  // A ring around each point that is selected, and a thinner one around what belongs to it.
  function rings(colour) {
    const ring = (ids, width) => {
      const points = current.points.filter((point) => ids.includes(point.row));
      return {
        type: "scatter", mode: "markers", hoverinfo: "skip", showlegend: false, name: "selected",
        x: points.map((point) => point.x), y: points.map((point) => point.y),
        marker: {
          symbol: "circle-open", size: points.map((point) => 1.25 * point.size + 8),
          color: colour("ink"), line: { color: colour("ink"), width },
        },
      };
    };
    return [ring(selection.relatedIds(), 1), ring(selection.ids(), 2.5)];
  }

  // Labels stand at the right end of each flat ceiling and along each slanted one.
  function labels(colour, area, ranges) {
    const perDecade = {
      x: area.width / (ranges.x[1] - ranges.x[0]),
      y: area.height / (ranges.y[1] - ranges.y[0]),
    };
    const font = (line) => ({ size: 12, color: colour(line.is_roof ? "ink" : "soft") });
    const lines = shownCeilings();
    const flat = flatLabels(lines.filter((line) => line.kind === "compute"), perDecade, ranges, font);
    const slanted = [];
    for (const line of lines) {
      if (line.kind !== "memory" || !line.name || (phone.matches && !line.is_roof)) continue;
      const label = slantedLabel(line, perDecade, ranges, font(line), flat, slanted);
      if (label) slanted.push(label);
    }
    return [...slanted, ...flat];
  }

  // Plotly reads a little HTML in labels: what comes from the data is escaped.
  function text(line, separator) {
    const escape = (part) =>
      part.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
    const measured = line.source === "measured" ? ", measured" : "";
    return `${escape(line.name)}${separator}${line.rate}${measured}`;
  }

  function slantedLabel(line, perDecade, ranges, font, flat, slanted) {
    const angle = Math.atan2(perDecade.y, perDecade.x);
    const offset = Math.log10(line.y0 / line.x0);
    // Low down the line runs among the memory-bound points; near its upper end it is free.
    const start = Math.max(ranges.x[0], ranges.y[0] - offset);
    const end = Math.min(ranges.x[1], ranges.y[1] - offset, Math.log10(line.x1));
    if (start >= end) return null;
    const isCloseBelow = shownCeilings().some((other) => {
      const up = (Math.log10(other.y0 / other.x0) - offset) * perDecade.y * Math.cos(angle);
      return other.kind === "memory" && up > 0 && up < 24;
    });
    const side = line.is_roof && !isCloseBelow ? 1 : -1;
    const at = (share) => start + share * (end - start);
    const halfOf = (words) => (words.length * 6.5) / 2;
    const half = halfOf(text(line, " "));
    // Two levels of memory of nearly one rate have lines too close for labels side by side.
    const isApart = (share) => slanted.every((other) => {
      const right = (other.x - at(share)) * perDecade.x;
      const up = (other.y - at(share) - offset) * perDecade.y;
      const along = Math.abs(right * Math.cos(angle) + up * Math.sin(angle));
      const across = Math.abs(up * Math.cos(angle) - right * Math.sin(angle));
      return across > 18 || along > half + halfOf(other.text) + 8;
    });
    // On a phone the flat ceilings' labels are in the plot too.
    const isFree = (share) => !phone.matches || flat.every((other) =>
      [-1, -0.5, 0, 0.5, 1].every((part) => {
        const right = (ranges.x[1] - at(share)) * perDecade.x - half * part * Math.cos(angle);
        const above = (at(share) + offset - other.y) * perDecade.y + half * part * Math.sin(angle);
        return right > 6 * other.text.length + 16 || Math.abs(above - other.yshift - 8) > 20;
      }));
    const places = [0.68, 0.8, 0.5, 0.35, 0.2];
    const x = at(places.find((share) => isFree(share) && isApart(share)) ?? places.find(isFree) ?? 0.68);
    return {
      x, y: x + offset, xref: "x", yref: "y", text: text(line, " "), font, showarrow: false,
      textangle: (-angle * 180) / Math.PI,
      xshift: -side * 10 * Math.sin(angle), yshift: side * 10 * Math.cos(angle),
    };
  }

  const firstRanges = () =>
    allPoints?.checked
      ? { x: data.whole_x_range, y: data.whole_y_range }
      : { x: data.x_range, y: data.y_range };

  // Moves heights apart to at least `gap`, each group around its own centre and below `limit`.
  // `heights` runs from high to low; so does the result.
  function spread(heights, gap, limit) {
    const half = ({ count }) => ((count - 1) / 2) * gap;
    const centre = (group) => Math.min(group.sum / group.count, limit - half(group));
    const bottom = (group) => centre(group) - half(group);
    const top = (group) => centre(group) + half(group);
    const groups = [];
    for (const height of heights) {
      let group = { sum: height, count: 1 };
      while (groups.length && bottom(groups.at(-1)) - top(group) < gap) {
        const above = groups.pop();
        group = { sum: above.sum + group.sum, count: above.count + group.count };
      }
      groups.push(group);
    }
    return groups.flatMap((group) =>
      Array.from({ length: group.count }, (_, index) => top(group) - index * gap));
  }

  // In the right margin, with a thin leader to each line's end; on a phone above the line's end.
  function flatLabels(lines, perDecade, ranges, font) {
    const height = (line) => (Math.log10(line.y0) - ranges.y[0]) * perDecade.y;
    const top = (ranges.y[1] - ranges.y[0]) * perDecade.y;
    const inside = lines.filter((line) => height(line) >= 0 && height(line) <= top);
    const sorted = inside.sort((a, b) => height(b) - height(a));
    if (phone.matches) return labelsInside(sorted, height, font);
    const heights = spread(sorted.map(height), isNarrow() ? 31 : 16, top);
    return sorted.map((line, index) => ({
      x: 1, xref: "paper", xanchor: "left", y: Math.log10(line.y0), yref: "y",
      text: text(line, isNarrow() ? "<br>" : " "), align: "left", font: font(line),
      ax: 24, ay: height(line) - heights[index], borderpad: 2,
      arrowhead: 0, arrowwidth: 1, arrowcolor: font(line).color,
    }));
  }

  // Leaves out the labels that would stand away from their line.
  function labelsInside(sorted, height, font) {
    let lowest = Infinity;
    return sorted.flatMap((line) => {
      if (!line.is_roof && height(line) > lowest - 15) return [];
      lowest = Math.min(height(line), lowest - 15);
      return [{
        x: 1, xref: "paper", xanchor: "right", y: Math.log10(line.y0), yref: "y",
        yanchor: "bottom", yshift: lowest - height(line), text: text(line, " "),
        font: { ...font(line), size: 11 }, showarrow: false, borderpad: 0,
        bgcolor: `color-mix(in srgb, ${colours()("page")} 70%, transparent)`,
      }];
    });
  }

  // A tick a decade; 2 and 5 too where few decades are on screen.
  function ticks([low, high], format) {
    const steps = high - low > 2.5 ? [1] : [1, 2, 5];
    const values = [];
    for (let exponent = Math.floor(low); exponent <= high; exponent += 1) {
      values.push(...steps.map((step) => Number(`${step}e${exponent}`)));
    }
    return { tickmode: "array", tickvals: values, ticktext: values.map(format) };
  }

  function plain(value) {
    return value >= 1e5 || value < 1e-4 ? value.toExponential() : String(value);
  }

  function prefixed(value) {
    const prefixes = ["", "k", "M", "G", "T", "P", "E"];
    const index = Math.max(0, Math.min(6, Math.floor(Math.log10(value) / 3 + 1e-9)));
    return `${plain(value / 1000 ** index)} ${prefixes[index]}`;
  }

  function axis(title, range, colour, format) {
    return {
      type: "log", range, title: { text: title, font: { size: 13 }, standoff: 10 },
      gridcolor: colour("faint"), zeroline: false, linecolor: colour("line"),
      tickfont: { size: 12 }, ticks: "outside", tickcolor: colour("line"), ticklen: 4,
      ...ticks(range, format),
    };
  }

  function currentRanges() {
    const layout = chart.layout;
    return {
      x: [...(layout?.xaxis?.range ?? firstRanges().x)],
      y: [...(layout?.yaxis?.range ?? firstRanges().y)],
    };
  }

  function layout(colour) {
    const ranges = currentRanges();
    const labelled = shownCeilings().some((line) => line.kind === "compute");
    const beside = labelled && !phone.matches;
    const margin = {
      l: phone.matches ? 58 : 70, r: beside ? (isNarrow() ? 185 : 270) : 16, t: 38, b: 56,
    };
    const width = print.matches ? 700 : chart.clientWidth;
    const height = chart.clientHeight;
    const area = { width: width - margin.l - margin.r, height: height - margin.t - margin.b };
    return {
      width, height, margin, annotations: labels(colour, area, ranges),
      paper_bgcolor: "transparent", plot_bgcolor: "transparent", hovermode: "closest",
      // A finger that moves over the plot scrolls the page; the mode bar has zoom and pan.
      dragmode: touch.matches ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
      legend: {
        orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom",
        itemsizing: "constant", font: { size: 13 },
      },
      modebar: { bgcolor: "transparent", color: colour("muted"), activecolor: colour("ink") },
      xaxis: axis("Arithmetic intensity (FLOP/byte)", ranges.x, colour, plain),
      yaxis: axis("FLOP/s", ranges.y, colour, prefixed),
    };
  }

  function draw() {
    const colour = colours();
    const kinds = Object.keys(data.marks).filter((kind) => current.points.some((p) => p.kind === kind));
    const drawn = Plotly.react(
      chart,
      [
        ...shownCeilings().map((line) => ceilingTrace(line, colour)),
        ...kinds.map((kind) => ({ ...pointTrace(kind, colour), showlegend: true })),
        ...rings(colour),
      ],
      layout(colour),
      {
        displaylogo: false,
        // Without a drag mode plotly takes a finger's tap for two clicks.
        doubleClick: touch.matches ? false : "reset+autosize",
        modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
        toImageButtonOptions: { format: "svg", filename: "roofline" },
      },
    );
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(button.dataset.level === current.name));
    }
    const outside = allPoints?.checked ? "" : current.outside;
    document.getElementById("chart-note").textContent =
      [outside, current.note].filter(Boolean).join(" ");
    return drawn;
  }

  function showCard(row, x, y) {
    const element = document.getElementById(row);
    const title = document.createElement("p");
    title.className = "title";
    title.textContent = element.querySelector(".title")?.textContent ?? "step";
    card.replaceChildren(title, element.querySelector(".figures").cloneNode(true));
    card.hidden = false;
    const box = card.getBoundingClientRect();
    const left = x + 18 + box.width < innerWidth ? x + 18 : x - 18 - box.width;
    card.style.left = `${Math.max(8, left)}px`;
    card.style.top = `${Math.max(8, Math.min(y - 20, innerHeight - box.height - 8))}px`;
  }

  // The row is selected and opened, so that the keyboard goes on from there.
  function goToRow(row) {
    const element = document.getElementById(row);
    const details = element.matches("details") ? element : element.querySelector("details");
    if (details) details.open = true;
    selection.select(element);
    (details?.querySelector("summary") ?? element).focus({ preventScroll: true });
  }

  await plotlyLoaded;
  // The drawing that stands here without script makes room.
  chart.replaceChildren();
  chart.classList.add("drawn");
  await draw();
  describePlot(chart, "Roofline plot; the tables below have the same figures");
  document.getElementById("chart-tools").hidden = false;
  chart.on("plotly_hover", ({ points: [point], event }) => {
    if (point.customdata) showCard(point.customdata, event.clientX, event.clientY);
  });
  chart.on("plotly_unhover", () => { card.hidden = true; });
  chart.on("plotly_click", ({ points: [point] }) => {
    card.hidden = true;
    if (point.customdata) goToRow(point.customdata);
  });
  // A zoom changes the slope on screen and so the labels. Only their update has annotations.
  chart.on("plotly_relayout", (change) => {
    if (Object.keys(change).some((key) => key.includes("axis"))) draw();
  });
  for (const button of buttons) {
    button.addEventListener("click", () => {
      current = data.levels.find((level) => level.name === button.dataset.level);
      draw();
    });
  }
  document.addEventListener("gpuprof:select", draw);
  allCeilings?.addEventListener("change", draw);
  allPoints?.addEventListener("change", () => {
    const { x, y } = firstRanges();
    Plotly.relayout(chart, { "xaxis.range": [...x], "yaxis.range": [...y] });
  });
  for (const query of [matchMedia("(prefers-color-scheme: dark)"), print, touch]) {
    query.addEventListener("change", draw);
  }
  let pending;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(draw, 100);
  });
})();
