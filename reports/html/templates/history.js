"use strict";

// One plot for each series: a dot for each gate, a dashed line for each change point.
globalThis.plotsDrawn = (async () => {
  const data = JSON.parse(document.getElementById("history-data").textContent);
  const charts = [...document.querySelectorAll(".series .plot")];
  // A finger that moves over a plot scrolls the page; the mode bar has zoom and pan.
  const touch = matchMedia("(pointer: coarse)");
  const escaped = (text) =>
    text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);

  function draw(series, chart) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const points = series.points;
    const changed = points.filter((point) => point.change);
    const dates = points.map((point) => point.date);
    const values = {
      type: "scatter", mode: "lines+markers", showlegend: false, hoverinfo: "text",
      x: dates, y: points.map((point) => point.value),
      text: points.map((point) => [
        `${point.value.toPrecision(4)} ${escaped(series.unit)}`, point.date,
        escaped(point.commit), `${point.processes} processes`,
      ].filter(Boolean).join("<br>")),
      line: { color: colour("muted"), width: 1 },
      marker: { size: 7, color: colour("accent") },
      error_y: {
        type: "data", symmetric: false, color: colour("muted"), thickness: 1, width: 0,
        array: points.map((point) => point.high - point.value),
        arrayminus: points.map((point) => point.value - point.low),
      },
    };
    return Plotly.react(
      chart,
      [values],
      {
        width: chart.clientWidth, height: 280, margin: { l: 72, r: 16, t: 44, b: 40 },
        paper_bgcolor: "transparent", plot_bgcolor: "transparent", hovermode: "closest",
        dragmode: touch.matches ? false : "zoom",
        font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
        modebar: {
          bgcolor: "transparent", color: colour("muted"), activecolor: colour("ink"),
        },
        shapes: changed.map((point) => ({
          type: "line", x0: point.date, x1: point.date, yref: "paper", y0: 0, y1: 1,
          line: { color: colour("bad"), width: 1.5, dash: "dash" },
        })),
        annotations: changed.map((point) => ({
          x: point.date, yref: "paper", y: 1, yanchor: "bottom", showarrow: false,
          text: point.change, font: { color: colour("bad"), size: 13 },
        })),
        xaxis: { type: "date", gridcolor: colour("faint"), zeroline: false },
        yaxis: {
          title: { text: escaped(series.unit), font: { size: 13 } },
          gridcolor: colour("faint"), zerolinecolor: colour("soft"),
        },
      },
      {
        displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
        toImageButtonOptions: { format: "svg", filename: "history" },
      },
    );
  }

  await plotlyLoaded;
  // The drawings that stand here without script make room.
  for (const chart of charts) chart.replaceChildren();
  const drawAll = () => Promise.all(data.series.map((series, index) => draw(series, charts[index])));
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(drawAll);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  await drawAll();
  for (const chart of charts) describePlot(chart);
})();
