// Builds the parts of the page that are texts: where the training is, its attempts, its outputs, and where else to look.

import { element, facts, link, table } from "./elements.js";
import { BASE } from "./airflow.js";
import { digits, duration, fields, instant, list, moment, number, size, text } from "./values.js";

const ENDED = ["success", "failed", "skipped", "upstream_failed", "removed"];
const FINAL = ["Succeeded", "Failed"];
const MOST_CHARACTERS = 2000;

/** Return whether the task may still change by itself. */
export const isLive = ({ instance }) => !ENDED.includes(instance.state);

/** Return the phase: the training's, unless Airflow has ended the task without one. */
export function phaseOf({ instance, xcoms }) {
  const { progress, return_value: result, diagnosis } = xcoms;
  const phase = text(fields(result).phase) ?? text(fields(progress).phase) ?? (diagnosis ? "Failed" : undefined);
  const isOver = ENDED.includes(instance.state);
  if (phase && (!isOver || FINAL.includes(phase))) return phase;
  return text(instance.state) ?? "no status";
}

/** Return phase, step and time left. */
export function state(seen, progress, now) {
  const { step, total, epoch, epochs, rate, eta } = progress;
  const phase = phaseOf(seen);
  const age = Math.max(0, now - (instant(progress.at) ?? now));
  const left = isLive(seen) && number(eta) !== null ? Math.max(0, eta - age) : null;
  const share = number(step) !== null && number(total) > 0 ? Math.min(100, Math.floor((100 * step) / total)) : null;
  const isFinal = phase === "Succeeded" || seen.instance.state === "success";
  const of = (value, whole) => (number(whole) === null ? digits(value) : `${digits(value)} of ${digits(whole)}`);
  const bar = element("progress", { max: 100, value: share ?? 0, "aria-label": "Steps" });
  return [
    element("p", { class: "phase" }, element("span", { class: `badge ${phase}` }, phase), text(progress.waits) ?? ""),
    share === null ? "" : bar,
    facts([
      ["Step", number(step) === null ? "" : `${of(step, total)}${share === null ? "" : ` (${share} %)`}`],
      ["Epoch", number(epoch) === null ? "" : of(epoch, epochs)],
      ["Rate", number(rate) === null ? "" : `${digits(rate)} steps/s`],
      ["Time left", left === null ? "" : `${duration(left)}, until about ${moment(now + left)}`],
      ["Last line read", isFinal ? "" : moment(instant(progress.at))],
      ["Airflow's state", `${text(seen.instance.state) ?? "no status"}, try ${text(seen.instance.try_number)}`],
    ]),
  ];
}

/** Return why the last attempt failed and what to do; undefined if it did not. */
export function failure(diagnosis) {
  if (!Object.keys(diagnosis).length) return undefined;
  return [
    element("p", {}, element("strong", {}, text(diagnosis.message))),
    facts([
      ["Cause", text(diagnosis.cause)],
      ["Replica", text(diagnosis.replica)],
      ["What to do", text(diagnosis.advice)],
      ["A retry", diagnosis.retryable === true ? "may help" : "does not help"],
    ]),
  ];
}

/** Return all attempts that are known, oldest first; undefined if there is none. */
export function attempts({ xcoms, instance }, progress, result, diagnosis) {
  const earlier = list(progress.attempts).map(fields);
  const newest = { ...result.job, ...fields(xcoms.job_name && { name: xcoms.job_name, namespace: xcoms.job_namespace }) };
  if (!newest.name && !earlier.length) return undefined;
  const current = {
    attempt: number(progress.attempt) ?? number(result.attempt) ?? number(diagnosis.attempt) ?? "",
    job: newest.name ? `${newest.namespace}/${newest.name}` : "",
    started: result.start ?? times(progress, "started")[0],
    ended: result.end ?? (isLive({ instance }) ? "" : times(progress, "ended").at(-1)),
    outcome: phaseOf({ xcoms, instance }),
    ...(diagnosis.attempt === null ? {} : { cause: diagnosis.cause, message: diagnosis.message, advice: diagnosis.advice }),
    first_step: progress.first_step,
    last_step: progress.step,
    resumed: progress.resumed,
  };
  const all = [...earlier.filter(({ attempt }) => attempt !== current.attempt), current];
  const rows = all.map((each) => [
    text(each.attempt),
    text(each.job),
    moment(instant(each.started)),
    duration(instant(each.ended) === null ? null : instant(each.ended) - instant(each.started)),
    [each.first_step, each.last_step].filter((step) => number(step) !== null).map(digits).join(" to "),
    [text(each.outcome), text(each.cause)].filter(Boolean).join(": "),
  ]);
  const notes = all.map(({ resumed, message, advice }) => [resumed, message, advice].filter(Boolean).map((each) => element("div", {}, text(each))));
  return table(["Attempt", "Job", "Started", "Ran", "Steps", "End"], rows, notes);
}

/** Return when the replicas started, or ended, earliest first. */
function times(progress, which) {
  const known = list(progress.replicas).map((each) => text(fields(each)[which])).filter((at) => instant(at) !== null);
  return known.sort((one, other) => instant(one) - instant(other));
}

/** Return where the outputs are, with size and digest; undefined if there are none. */
export function outputs(result, xcoms) {
  const model = fields(result.model);
  const events = fields(result.tfevents);
  const scalars = Object.entries(fields(events.scalars)).map(([tag, value]) => `${tag} ${digits(value)}`);
  const pairs = [
    ["Model", text(model.uri ?? xcoms.model_uri)],
    ["Size", size(model.bytes)],
    ["SHA-256", text(model.sha256)],
    ["In doubt", text(model.in_doubt || undefined)],
    ["Events", text(events.uri ?? xcoms.tfevents_uri)],
    ["Last values", scalars.join(", ")],
    ["Return value", text(result.return_value)?.slice(0, MOST_CHARACTERS)],
    ["Commit of the code", text(result.git_revision ?? fields(result.code_revision).commit)],
  ].filter(([, value]) => value);
  return pairs.length ? facts(pairs) : undefined;
}

/** Return what the job used; undefined if that is not known. */
export function used(result, usage) {
  const { queue_seconds: queued, run_seconds: ran, gpu_seconds: gpu, gpu_seconds_lost: lost, restarts } = { ...usage, ...result };
  if (number(ran) === null) return undefined;
  return facts([
    ["Waited", duration(queued)],
    ["Ran", duration(ran)],
    ["GPU time", gpu > 0 ? `${duration(gpu)}${lost > 0 ? `, ${duration(lost)} of it lost by restarts` : ""}` : ""],
    ["Restarts", restarts > 0 ? digits(restarts) : ""],
  ]);
}

/** Return links to the task, its logs, its job and TensorBoard. */
export function links({ xcoms, links: given, tries, instance }, reader) {
  const logs = tries.length ? tries : [instance];
  const own = logs.map(({ try_number: number_, state: end }) => {
    const address = new URL(`${reader.page}?try_number=${number_}`, BASE);
    return link(`Log of try ${text(number_)}${end ? ` (${text(end)})` : ""}`, address.href);
  });
  // Airflow has links only once the try has ended or deferred.
  const all = { ...given, TensorBoard: given.TensorBoard || text(xcoms.tensorboard_url) };
  const others = Object.entries(all).filter(([name, address]) => name !== "Training" && address);
  const beside = others.map(([name, address]) => link(name, text(address)));
  const job = xcoms.job_name ? element("code", {}, `ptjob get ${xcoms.job_name} -n ${xcoms.job_namespace}`) : "";
  return element("ul", { class: "links" }, [...own, ...beside, job].filter(Boolean).map((each) => element("li", {}, each)));
}
