"use strict";

// The paired differences: a row for each judged metric, a dot for each pair.
globalThis.plotsDrawn = (async () => {
  const data = JSON.parse(document.getElementById("gate-data").textContent);
  const chart = document.getElementById("differences");
  const rows = data.rows;
  // A finger that moves over a plot scrolls the page; the mode bar has zoom and pan.
  const touch = matchMedia("(pointer: coarse)");
  const names = {
    PASS: "muted", IMPROVED: "good", REGRESSED: "bad", ERROR: "bad",
    INCONCLUSIVE: "doubtful", INCOMPARABLE: "other", "CHANGED-KERNEL": "other",
  };
  const symbols = {
    PASS: "circle", IMPROVED: "triangle-down", REGRESSED: "triangle-up", ERROR: "triangle-up",
    INCONCLUSIVE: "diamond", INCOMPARABLE: "diamond", "CHANGED-KERNEL": "diamond",
  };
  // A pixel or two beside each other, so that equal pairs do not hide each other.
  const beside = (index) => 0.1 * ((index % 5) - 2);
  const escaped = (text) =>
    text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
  const shortened = (text) => (text.length > 40 ? `${text.slice(0, 18)}…${text.slice(-21)}` : text);
  const signed = (value) => `${value > 0 ? "+" : ""}${value.toFixed(1)} %`;

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const dots = { x: [], y: [], text: [], color: [], symbol: [] };
    const shapes = [];
    rows.forEach((row, y) => {
      row.pairs.forEach((change, index) => {
        dots.x.push(change);
        dots.y.push(y + beside(index));
        dots.text.push(`${escaped(row.label)}<br>pair ${index + 1}: ${signed(change)}`);
        dots.color.push(colour(names[row.verdict]));
        dots.symbol.push(symbols[row.verdict]);
      });
      if (row.limit !== null) {
        shapes.push({
          type: "line", x0: row.limit, x1: row.limit, y0: y - 0.38, y1: y + 0.38,
          line: { color: colour("soft"), width: 1.5, dash: "2px,2px" },
        });
      }
    });
    const means = {
      type: "scatter", mode: "markers", hoverinfo: "text", showlegend: false,
      x: rows.map((row) => row.mean), y: rows.map((_, y) => y),
      text: rows.map((row) => `${escaped(row.label)}<br>mean ${signed(row.mean)}`),
      marker: { symbol: "line-ns", size: 15, line: { color: colour("ink"), width: 2.5 } },
      error_x: {
        type: "data", symmetric: false, color: colour("ink"), thickness: 1.6, width: 0,
        array: rows.map((row) => (row.interval ? row.interval[1] - row.mean : 0)),
        arrayminus: rows.map((row) => (row.interval ? row.mean - row.interval[0] : 0)),
      },
    };
    const pairs = {
      type: "scatter", mode: "markers", hoverinfo: "text", showlegend: false,
      x: dots.x, y: dots.y, text: dots.text,
      marker: { size: 9, symbol: dots.symbol, color: dots.color, opacity: 0.8, line: { color: colour("page"), width: 1 } },
    };
    return Plotly.react(
      chart,
      [pairs, means],
      {
        width: chart.clientWidth, height: 112 + 34 * rows.length,
        margin: { l: Math.min(300, chart.clientWidth / 3), r: 16, t: 30, b: 52 },
        paper_bgcolor: "transparent", plot_bgcolor: "transparent", hovermode: "closest",
        dragmode: touch.matches ? false : "zoom", shapes,
        font: {
          family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink"),
        },
        modebar: {
          bgcolor: "transparent", color: colour("muted"), activecolor: colour("ink"),
        },
        xaxis: {
          title: { text: "head over base", font: { size: 13 } }, ticksuffix: " %",
          rangemode: "tozero", gridcolor: colour("faint"), zerolinecolor: colour("soft"),
        },
        yaxis: {
          range: [rows.length - 0.4, -0.6], tickvals: rows.map((_, y) => y),
          ticktext: rows.map((row) => escaped(shortened(row.label))), gridcolor: colour("faint"),
          zeroline: false, fixedrange: true,
        },
      },
      {
        displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
        toImageButtonOptions: { format: "svg", filename: "gate" },
      },
    );
  }

  await plotlyLoaded;
  // The drawing that stands here without script makes room.
  chart.replaceChildren();
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(draw);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  await draw();
  describePlot(document.getElementById("differences"));
})();
