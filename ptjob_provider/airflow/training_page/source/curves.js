// Draws the stored curves with uPlot: one plot for each tag, over the step or, where steps start anew, over the time.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { element, table } from "./elements.js";
import { digits, fields, list, moment, number } from "./values.js";

const MOST_PLOTS = 16;
const HEIGHT = 190;

let drawn = [];

/** Return the plots of `progress`, which `draw` fills once they are in the page; undefined if there is no curve. */
export function curves(progress) {
  const { step, at, metrics } = fields(progress.curve);
  const tags = Object.keys(fields(metrics)).slice(0, MOST_PLOTS);
  const series = tags.map((tag) => [tag, points(step, at, metrics[tag])]).filter(([, { x }]) => x.length);
  if (!series.length) return undefined;
  const last = series.map(([tag, { x, y, isTime }]) => {
    const place = isTime ? moment(x.at(-1)) : digits(x.at(-1));
    return [tag, digits(y.at(-1)), place, digits(Math.min(...y)), digits(Math.max(...y))];
  });
  return [
    element("div", { class: "plots" }, series.map(([tag, of]) => figure(tag, of))),
    element(
      "details",
      {},
      element("summary", {}, "The curves as a table"),
      table(["Metric", "Last value", series[0][1].isTime ? "At" : "At step", "Lowest", "Highest"], last),
    ),
  ];
}

/** Return the points of one tag that can be drawn: from left to right, numbers only. */
function points(step, at, values) {
  const steps = list(step);
  const isTime = steps.some((value, place) => number(value) === null || value < steps[place - 1]);
  const axis = isTime || !steps.length ? list(at) : steps;
  const kept = list(values).map((value, place) => [number(axis[place]), number(value)]);
  const numbers = kept.filter(([x, y]) => x !== null && y !== null);
  return { x: numbers.map(([x]) => x), y: numbers.map(([, y]) => y), isTime: axis !== steps };
}

function figure(tag, { x, y, isTime }) {
  const label = `${tag}: ${digits(y[0])} at first, ${digits(y.at(-1))} now`;
  const place = element("div", { class: "plot", role: "img", "aria-label": label });
  place.draw = () => plot(place, [x, y], isTime);
  return element("figure", {}, element("figcaption", {}, tag, element("span", {}, digits(y.at(-1)))), place);
}

/** Draw all plots in the page anew, in the colours that hold now. */
export function draw() {
  drawn.forEach((old) => old.destroy());
  drawn = [...document.querySelectorAll(".plot")].map((place) => place.draw());
}

/** Fit the plots to the width that the page gives them. */
export function resize() {
  drawn.forEach((each) => each.setSize({ width: each.root.parentNode.clientWidth, height: HEIGHT }));
}

function plot(place, data, isTime) {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const options = {
    width: place.clientWidth,
    height: HEIGHT,
    cursor: { sync: { key: "training" }, y: false },
    legend: { show: true },
    scales: { x: { time: isTime } },
    axes: [{ ...axis, size: 30 }, { ...axis, size: 62, values: (_, ticks) => ticks.map(digits) }],
    series: [
      { label: isTime ? "time" : "step" },
      { label: "value", stroke: colour("--accent"), width: 1.5, value: (_, value) => digits(value) ?? "–" },
    ],
  };
  return new uPlot(options, data, place);
}
