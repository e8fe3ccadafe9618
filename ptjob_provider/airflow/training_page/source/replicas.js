// Shows the replicas over time: when each ran, on which node, and how it ended.

import { element, table } from "./elements.js";
import { digits, duration, fields, instant, list, moment, text } from "./values.js";

/** Return the replicas of `progress`, or those that an older result says have failed; undefined if there are none. */
export function replicas(progress, result, now) {
  const known = list(progress.replicas).map(fields);
  if (!known.length) return failedOnes(result);
  const starts = known.map(({ started }) => instant(started)).filter((at) => at !== null);
  const ends = known.map((each) => endOf(each, now)).filter((at) => at !== null);
  const from = Math.min(...starts);
  const until = Math.max(...ends, from + 1);
  const rows = known.map((each) => [
    element("strong", {}, text(each.name), each.rank === 0 ? " (rank 0)" : ""),
    text(each.node) ?? "",
    starts.length ? track(each, { from, until, now }) : "",
    end(each),
  ]);
  const left = progress.replicas_left_out;
  return [
    table(["Replica", "Node", "When it ran", "End"], rows),
    starts.length ? element("p", { class: "quiet" }, `${moment(from)} to ${moment(until)}, ${duration(until - from)}`) : "",
    left > 0 ? element("p", {}, `${digits(left)} more replicas are not shown.`) : "",
  ];
}

function endOf({ started, ended, phase }, now) {
  return instant(ended) ?? (phase === "Running" && instant(started) !== null ? now : instant(started));
}

/** Return a bar from the replica's start to its end, on the axis of all replicas. */
function track(replica, { from, until, now }) {
  const started = instant(replica.started);
  if (started === null) return element("div", { class: "track" });
  const ended = endOf(replica, now);
  const percent = (seconds) => `${((100 * seconds) / (until - from)).toFixed(2)}%`;
  const bar = element("div", { class: `bar ${text(replica.phase) ?? ""}`, title: `${moment(started)} to ${moment(ended)}` });
  bar.style.marginLeft = percent(started - from); // not in markup: the page's policy forbids that
  bar.style.width = percent(ended - started);
  return element("div", { class: "track" }, bar);
}

function end({ phase, exit_code: code, reason, restarts, failed_first: isFirst }) {
  const parts = [
    text(phase),
    code === null || code === undefined ? "" : `exit code ${text(code)}`,
    text(reason),
    restarts > 0 ? `${digits(restarts)} restarts` : "",
  ];
  return [isFirst === true ? element("strong", { class: "bad" }, "failed first") : "", " ", parts.filter(Boolean).join(" · ")];
}

function failedOnes(result) {
  const failed = list(result.failed_replicas).map(fields);
  if (!failed.length) return undefined;
  const rows = failed.map((each) => [text(each.replica), text(each.cause), text(each.exit_code), text(each.message)]);
  return table(["Replica that failed", "Cause", "Exit code", "What was seen"], rows);
}
