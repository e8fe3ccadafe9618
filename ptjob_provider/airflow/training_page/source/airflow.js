// Reads one task instance from Airflow's public REST API, with the session of whoever looks at the page.

import { fields, list } from "./values.js";

/** The address of this Airflow: the page is at `ptjob/training/` below it, whatever stands before. */
export const BASE = new URL("../../", location.href);

const KEYS = [
  ...["job_name", "job_namespace", "tensorboard_url", "progress"],
  ...["return_value", "diagnosis", "usage", "model_uri", "tfevents_uri"],
];

/** Airflow's refusal, or no answer; `status` is that of HTTP, 0 without an answer. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Return the task instance that the page's address names, as Airflow's link and its tab write it. */
export function named(query) {
  const pairs = query.replace(/^\?/, "").split("&").map((pair) => pair.split(/=(.*)/s, 2));
  const given = Object.fromEntries(pairs.map(([name, value]) => [name, decoded(value ?? "")]));
  const mapIndex = /^\d+$/.test(given.map_index ?? "") ? Number(given.map_index) : -1;
  return { dagId: given.dag_id, runId: given.run_id, taskId: given.task_id, mapIndex };
}

/** Return the value; a `+` stays one, because it is part of the ids of scheduled runs: Airflow 3.1 does not escape it. */
function decoded(value) {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/** Reads a task instance, and of its XComs only those that are new since the last time. */
export class TaskReader {
  #known = new Map();

  constructor({ dagId, runId, taskId, mapIndex }) {
    const parts = [dagId, runId, taskId].map(encodeURIComponent);
    this.mapIndex = mapIndex;
    this.task = `api/v2/dags/${parts[0]}/dagRuns/${parts[1]}/taskInstances/${parts[2]}`;
    this.instance = mapIndex < 0 ? this.task : `${this.task}/${mapIndex}`;
    this.page = `dags/${parts[0]}/runs/${parts[1]}/tasks/${parts[2]}${mapIndex < 0 ? "" : `/mapped/${mapIndex}`}`;
  }

  /** Return {instance, tries, links, xcoms}: the first as Airflow has them, XComs by key. */
  async read() {
    const [instance, tries, links, entries] = await Promise.all([
      get(this.instance),
      orNothing(get(`${this.instance}/tries`)),
      orNothing(get(`${this.task}/links?map_index=${this.mapIndex}`)),
      get(`${this.task}/xcomEntries?map_index=${this.mapIndex}&limit=100`),
    ]);
    const now = list(entries.xcom_entries).filter((entry) => KEYS.includes(entry.key));
    const pairs = await Promise.all(now.map(async (entry) => [entry.key, await this.#value(entry)]));
    return {
      instance: fields(instance),
      tries: list(tries.task_instances),
      links: fields(links.extra_links),
      xcoms: Object.fromEntries(pairs.filter(([, value]) => value !== undefined)),
    };
  }

  async #value({ key, timestamp }) {
    if (this.#known.get(key)?.timestamp === timestamp) return this.#known.get(key).value;
    const { value } = await orNothing(get(`${this.task}/xcomEntries/${key}?map_index=${this.mapIndex}`));
    this.#known.set(key, { timestamp, value: parsed(value) });
    return this.#known.get(key).value;
  }
}

/** Return the answer, or {} for a 404: the next try has deleted the XCom, or the DAG has no longer this task. */
async function orNothing(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error.status === 404) return {};
    throw error;
  }
}

/** Return the value of an XCom, which an Airflow may answer as it is or as JSON in a text. */
function parsed(value) {
  if (typeof value !== "string" || !/^["{[]/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

/** Return the JSON of a path below Airflow; throw `Refused` where it says no, or nothing within ten seconds. */
export async function get(path) {
  let response;
  try {
    response = await fetch(new URL(path, BASE), { credentials: "same-origin", signal: AbortSignal.timeout(10_000) });
  } catch (error) {
    throw new Refused(0, `Airflow does not answer: ${error.message}`);
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return fields(answer);
  const detail = typeof answer.detail === "string" ? answer.detail : JSON.stringify(answer.detail ?? "");
  throw new Refused(response.status, `Airflow answers ${response.status} ${response.statusText}: ${detail}`);
}
