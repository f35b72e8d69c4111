"use strict";

// Memory over time: what is allocated and what is reserved, with the profiled steps behind them.
globalThis.memoryDrawn = (async () => {
  const figures = [...document.querySelectorAll("figure.memory")];
  const data = figures.map((figure) => JSON.parse(figure.querySelector("script").textContent));
  // A finger that moves over a plot scrolls the page; the mode bar has zoom and pan.
  const touch = matchMedia("(pointer: coarse)");
  const print = matchMedia("print");

  function draw(plot, chart) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const hover = `%{y:.4g} ${plot.byte_unit} at %{x:.4g} ${plot.time_unit}`;
    const trace = (name, values, line) => ({
      type: "scatter", mode: "lines", name, x: plot.times, y: values,
      hovertemplate: `${name} ${hover}<extra></extra>`, line: { shape: "hv", ...line },
    });
    const traces = [trace("allocated", plot.allocated, { color: colour("accent"), width: 1.6 })];
    if (plot.reserved.length) {
      traces.push(
        trace("reserved", plot.reserved, { color: colour("muted"), width: 1.2, dash: "5px,4px" }),
      );
    }
    const shapes = plot.steps.map(([x0, x1]) => ({
      type: "rect", x0, x1, yref: "paper", y0: 0, y1: 1, layer: "below",
      fillcolor: colour("surface"), line: { color: colour("line"), width: 1 },
    }));
    const annotations = [];
    if (plot.limit !== null) {
      shapes.push({
        type: "line", xref: "paper", x0: 0, x1: 1, y0: plot.limit, y1: plot.limit,
        line: { color: colour("bad"), width: 1.2 },
      });
      annotations.push({
        xref: "paper", x: 1, xanchor: "right", y: plot.limit, yanchor: "bottom", showarrow: false,
        text: "what the device has", font: { color: colour("bad"), size: 12 },
      });
    }
    const axis = (title) => ({
      title: { text: title, font: { size: 13 } }, rangemode: "tozero", zeroline: false,
      gridcolor: colour("faint"), linecolor: colour("line"), tickfont: { size: 12 },
    });
    return Plotly.react(
      chart,
      traces,
      {
        width: print.matches ? 700 : chart.clientWidth, height: 300,
        margin: { l: 70, r: 16, t: 30, b: 48 }, shapes, annotations, showlegend: true,
        paper_bgcolor: "transparent", plot_bgcolor: "transparent", hovermode: "closest",
        dragmode: touch.matches ? false : "zoom",
        font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
        legend: { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom" },
        modebar: { bgcolor: "transparent", color: colour("muted"), activecolor: colour("ink") },
        xaxis: { ...axis(`Time (${plot.time_unit})`), showgrid: false },
        yaxis: axis(plot.byte_unit),
      },
      {
        displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
        toImageButtonOptions: { format: "svg", filename: "memory" },
      },
    );
  }

  await plotlyLoaded;
  const charts = figures.map((figure) => figure.querySelector(".plot"));
  // The drawings that stand here without script make room.
  for (const chart of charts) {
    chart.replaceChildren();
    chart.classList.add("drawn");
  }
  const drawAll = () => Promise.all(data.map((plot, index) => draw(plot, charts[index])));
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(drawAll);
  });
  for (const query of [matchMedia("(prefers-color-scheme: dark)"), print, touch]) {
    query.addEventListener("change", drawAll);
  }
  await drawAll();
  for (const chart of charts) {
    describePlot(chart, "Memory over time; the tables below have the figures");
  }
})();
