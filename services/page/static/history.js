// Bytes over time: one small picture for each state, and the same figures as a table.
import {bytesText, counted, element, shape, table} from "./elements.js";

const STATES = ["live", "held", "pending", "claimed", "freed"];
const MOST_ROWS = 20;

function timeText(ms) { return new Date(ms).toISOString().slice(0, 19).replace("T", " "); }

function spark(parent, points, state) {
  const values = points.map((point) => Number(point[`${state}_bytes`] || 0));
  const from = points[0].at_ms, span = Math.max(1, points[points.length - 1].at_ms - from);
  const most = Math.max(1, ...values);
  const places = values.map((value, index) =>
    [100 * (points[index].at_ms - from) / span, 30 - 28 * value / most]);
  if (places.length === 1) places.push([100, places[0][1]]);
  const line = places.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L");
  const drawn = shape("svg", parent, {viewBox: "0 0 100 32", preserveAspectRatio: "none", class: "spark", "aria-hidden": true});
  shape("path", drawn, {d: `M0 32L${line}L100 32Z`, class: "area"});
  shape("path", drawn, {d: `M${line}`, class: "line"});
}

// Draws the history anew; the details that a reader has opened stay open.
export function drawHistory(parent, points) {
  const wasOpen = parent.querySelector("details")?.open;
  parent.replaceChildren();
  if (!points.length) {
    element("p", parent, {className: "quiet", textContent: "Nothing was observed yet: the first figures come within seconds."});
    return;
  }
  const first = points[0], last = points[points.length - 1];
  element("p", parent, {className: "quiet", textContent:
    `Since ${timeText(first.at_ms)} UTC, when this page began to watch; ${counted(points.length, "observation")}.`});
  const list = element("ul", parent, {className: "sparks"});
  for (const state of STATES) {
    const item = element("li", list);
    const now = BigInt(last[`${state}_bytes`] || 0), change = now - BigInt(first[`${state}_bytes`] || 0);
    element("b", item, {textContent: state});
    item.append(` ${bytesText(now)} `);
    const sign = change > 0n ? "+" : change < 0n ? "−" : "±";
    element("span", item, {className: "quiet", textContent: `${sign}${bytesText(change < 0n ? -change : change)}`});
    spark(item, points, state);
  }
  const details = element("details", parent);
  details.open = Boolean(wasOpen);
  element("summary", details, {textContent: "The figures as a table"});
  const every = Math.ceil(points.length / MOST_ROWS);
  table(details, "Bytes over time", [["time (UTC)", "text"], ...STATES.map((state) => [state])],
    points.filter((_, index) => (points.length - 1 - index) % every === 0)
      .map((point) => [timeText(point.at_ms), ...STATES.map((state) => bytesText(BigInt(point[`${state}_bytes`] || 0)))]));
}
