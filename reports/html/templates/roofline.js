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
  const print = matchMedia("print");
  const touch = matchMedia("(pointer: coarse)");
  const { isNarrow, phone } = ceilingLabels;
  const levels = [...data.levels, ...(data.links?.levels ?? [])];
  let [current] = levels;

  // The axes and roofs of the level that is shown.
  const view = () => (data.levels.includes(current) ? data : data.links);

  const shownCeilings = () =>
    view().ceilings.filter((line) => line.used || !allCeilings || allCeilings.checked);

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
      // From the slowest to the fastest call.
      error_y: {
        type: "data", symmetric: false, color: colour("soft"), thickness: 1.2, width: 0,
        array: points.map((point) => (point.fastest ?? point.y) - point.y),
        arrayminus: points.map((point) => point.y - (point.slowest ?? point.y)),
      },
    };
  }

  // Where the models put what was counted, and a line from there to the count.
  function modelledTraces(colour) {
    const points = current.points.filter((point) => point.modelled);
    if (!points.length) return [];
    const joined = (at) => points.flatMap((point) => [point.modelled[at], [point.x, point.y][at], null]);
    return [
      {
        type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, name: "joined",
        x: joined(0), y: joined(1), line: { color: colour("soft"), width: 1.2 },
      },
      {
        type: "scatter", mode: "markers", hoverinfo: "none", showlegend: true, name: "modelled",
        x: points.map((point) => point.modelled[0]), y: points.map((point) => point.modelled[1]),
        customdata: points.map((point) => point.row),
        marker: { symbol: "diamond-open", size: 10, color: colour("ink"), line: { width: 1.5 } },
      },
    ];
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

  const firstRanges = () =>
    allPoints?.checked
      ? { x: view().whole_x_range, y: view().whole_y_range }
      : { x: view().x_range, y: view().y_range };

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

  const significant = (value) => Number(value.toPrecision(3));

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

  const titles = () => (view() === data
    ? { x: "Arithmetic intensity (FLOP/byte)", y: "FLOP/s", unit: (value) => `${significant(value)} FLOP/byte` }
    : { x: "Bytes of one call", y: "Bytes/s", unit: (value) => `${prefixed(significant(value))}B` });

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
      width, height, margin, annotations: ceilingLabels.all(shownCeilings(), { colour, area, ranges, unit: titles().unit }),
      paper_bgcolor: "transparent", plot_bgcolor: "transparent", hovermode: "closest",
      // A finger that moves over the plot scrolls the page; the mode bar has zoom and pan.
      dragmode: touch.matches ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
      legend: {
        orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom",
        itemsizing: "constant", font: { size: 13 },
      },
      modebar: { bgcolor: "transparent", color: colour("muted"), activecolor: colour("ink") },
      xaxis: axis(titles().x, ranges.x, colour, view() === data ? plain : prefixed),
      yaxis: axis(titles().y, ranges.y, colour, prefixed),
    };
  }

  function draw() {
    const colour = colours();
    const kinds = Object.keys(data.marks).filter((kind) => current.points.some((p) => p.kind === kind));
    const drawn = Plotly.react(
      chart,
      [
        ...shownCeilings().map((line) => ceilingTrace(line, colour)),
        ...modelledTraces(colour),
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
      [outside, current.bars, current.note].filter(Boolean).join(" ");
    return drawn;
  }

  // Of a row without figures behind it, what its cells say.
  function figuresOf(element) {
    const figures = element.querySelector(".figures");
    if (figures) return figures.cloneNode(true);
    const list = document.createElement("dl");
    const heads = element.closest("table").tHead.rows[0].cells;
    for (const cell of [...element.cells].slice(1).filter((each) => each.textContent.trim())) {
      const term = document.createElement("dt");
      const value = document.createElement("dd");
      term.textContent = heads[cell.cellIndex].textContent;
      value.textContent = cell.textContent;
      list.append(term, value);
    }
    return list;
  }

  // Points that lie on this one: the pointer reaches only the one in front.
  function neighbours(row) {
    const at = current.points.find((point) => point.row === row);
    const near = (a, b) => Math.abs(a / b - 1) < 0.005;
    const number = current.points.filter((point) => near(point.x, at.x) && near(point.y, at.y)).length - 1;
    if (number < 1) return [];
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = `${number} more ${number === 1 ? "point lies" : "points lie"} here.`;
    return [note];
  }

  function showCard(row, x, y) {
    const element = document.getElementById(row);
    const title = document.createElement("p");
    title.className = "title";
    title.textContent = element.querySelector(".title")?.textContent ?? element.dataset.key;
    card.replaceChildren(title, figuresOf(element), ...neighbours(row));
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
  const toFirstRanges = () => {
    const { x, y } = firstRanges();
    return Plotly.relayout(chart, { "xaxis.range": [...x], "yaxis.range": [...y] });
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const before = view();
      current = levels.find((level) => level.name === button.dataset.level);
      // Links have axes of their own; what was zoomed to on the others says nothing there.
      if (view() === before) draw();
      else toFirstRanges();
    });
  }
  document.addEventListener("gpuprof:select", draw);
  allCeilings?.addEventListener("change", draw);
  allPoints?.addEventListener("change", toFirstRanges);
  for (const query of [matchMedia("(prefers-color-scheme: dark)"), print, touch]) {
    query.addEventListener("change", draw);
  }
  let pending;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(draw, 100);
  });
})();
