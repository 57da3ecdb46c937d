// The keyboard, and the two time series. Pages are whole without this file.
(() => {
  "use strict";

  const isField = (one) => one && (one.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(one.tagName));
  const help = () => document.getElementById("keys");

  const move = (step) => {
    const stops = [...document.querySelectorAll("[data-stop]")].filter((one) => one.checkVisibility());
    if (!stops.length) return;
    const active = document.activeElement;
    let at = stops.findIndex((one) => one === active || one.contains(active));
    if (at < 0) {
      // Nothing is chosen yet: begin with what can be seen.
      const seen = stops.findIndex((one) => one.getBoundingClientRect().bottom > 80);
      at = step > 0 ? Math.max(seen, 0) - 1 : seen;
    }
    const next = stops[Math.min(Math.max(at + step, 0), stops.length - 1)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  };

  const ACTIONS = {
    "/": () => {
      const field = document.querySelector("input[type=search]");
      if (field) {
        field.focus();
        field.select();
      } else {
        location.assign("/search");
      }
    },
    j: () => move(1),
    k: () => move(-1),
    "?": () => help()?.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isField(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = help()?.open ? undefined : ACTIONS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });

  // Time series: drawn in place of the drawing that came with the page.

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = new Map();

  const markCuts = (cuts) => (plot) => {
    const context = plot.ctx;
    context.save();
    context.strokeStyle = colour("--c2");
    context.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const at of cuts) {
      const x = plot.valToPos(at, "x", true);
      context.beginPath();
      context.moveTo(x, plot.bbox.top);
      context.lineTo(x, plot.bbox.top + plot.bbox.height);
      context.stroke();
    }
    context.restore();
  };

  const draw = (holder) => {
    const given = JSON.parse(holder.dataset.series);
    if (given.at.length < 2) return;
    charts.get(holder)?.destroy();
    holder.replaceChildren();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const show = (value) => {
      if (value == null) return "";
      if (!given.money) return value.toLocaleString("en");
      return value === 0 ? "$0" : "$" + value.toFixed(given.values.at(-1) < 0.1 ? 3 : 2);
    };
    const day = (at) => new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    const short = given.at.at(-1) - given.at[0] < 600; // then seconds tell one tick from the next
    const clock = (at) =>
      new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(short && { second: "2-digit" }) });
    const nameTicks = (_, ticks) =>
      ticks.map((at, n) => {
        const midnight = n === 0 || day(at) !== day(ticks[n - 1]);
        return midnight ? day(at) + (clock(at) === "00:00" ? "" : "\n" + clock(at)) : clock(at);
      });
    charts.set(
      holder,
      new uPlot(
        {
          width: holder.clientWidth,
          height: 170,
          padding: [8, 12, 0, 0],
          cursor: { y: false },
          series: [
            { value: (_, at) => (at == null ? "" : day(at) + " " + clock(at)) },
            { label: given.name, stroke: colour("--accent"), fill: colour("--soft"), width: 1.8, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (_, value) => show(value) },
          ],
          axes: [{ ...axis, values: nameTicks, space: short ? 90 : 70, size: 40, gap: 4 }, { ...axis, size: 64, values: (_, ticks) => ticks.map(show) }],
          scales: { y: { range: (_, low, high) => [0, (high || 1) * 1.08] } },
          hooks: { draw: [markCuts(given.cuts)] },
        },
        [given.at, given.values],
        holder,
      ),
    );
  };

  const drawAll = () => {
    if (window.uPlot) document.querySelectorAll("[data-series]").forEach(draw);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let pending = 0;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(drawAll, 150);
  });
  drawAll();
})();
