// The Training page: reads a task from Airflow, shows it, and reads it again while it is live and the page is seen.

import { BASE, TaskReader, get, named } from "./airflow.js";
import { curves, draw, resize } from "./curves.js";
import { element } from "./elements.js";
import { replicas } from "./replicas.js";
import { attempts, failure, isLive, links, outputs, phaseOf, state, used } from "./sections.js";
import { fields, instant, text } from "./values.js";
import "./page.css";

const REFRESH = 5_000; // milliseconds
const COOKIE_SINCE = "3.1.1"; // Airflow 3.1.0 wants a header, which only its own page has

const page = document.getElementById("page");
const shown = new Map();
const task = named(location.search);
let timer;
let turn = 0;

/** Put the section into the page, which is left alone while its content is the same; return whether it has changed. */
function put(name, title, content) {
  const place = document.getElementById(name) ?? page.appendChild(element("section", { id: name }));
  place.hidden = content === undefined;
  const made = element("div", {}, title ? element("h2", {}, title) : "", content ?? []);
  if (shown.get(name)?.isEqualNode(made)) return false;
  shown.set(name, made.cloneNode(true));
  replace(place, made);
  return true;
}

/** Replace what a section shows; what the reader has opened stays open, and the focus stays where it was. */
function replace(place, made) {
  const reached = "summary, a, [tabindex]";
  const focused = [...place.querySelectorAll(reached)].indexOf(document.activeElement);
  const isOpen = place.querySelector("details")?.open;
  place.replaceChildren(made);
  if (isOpen) made.querySelector("details")?.setAttribute("open", "");
  made.querySelectorAll(reached)[focused]?.focus({ preventScroll: true });
}

function show(seen, reader) {
  const { progress, return_value: result, diagnosis, usage } = Object.fromEntries(
    ["progress", "return_value", "diagnosis", "usage"].map((key) => [key, fields(seen.xcoms[key])]),
  );
  const now = Date.now() / 1000;
  const mapped = task.mapIndex < 0 ? "" : ` [${text(seen.instance.rendered_map_index) ?? task.mapIndex}]`;
  document.title = `${phaseOf(seen)}: ${task.taskId}${mapped}`;
  document.getElementById("name").replaceChildren(`${task.dagId} · ${task.taskId}${mapped}`);
  document.getElementById("run").replaceChildren(`Run ${task.runId}`);
  put("state", "", state(seen, progress, now));
  put("failure", "Why it failed", failure(diagnosis));
  if (put("curves", "Curves", curves(progress))) draw();
  put("replicas", "Replicas", replicas(progress, result, isLive(seen) ? now : instant(progress.at)));
  put("attempts", "Attempts", attempts(seen, progress, result, diagnosis));
  put("outputs", "Outputs", outputs(result, seen.xcoms));
  put("used", "What it used", used(result, usage));
  put("links", "Elsewhere", links(seen, reader));
}

/** Say something about the page itself; a screen reader says it, too. */
function tell(...content) {
  document.getElementById("status").replaceChildren(...content);
}

async function refused(error) {
  const version = error.status === 401 ? (await get("api/v2/version").catch(() => ({}))).version : "";
  const login = new URL("api/v2/auth/login", BASE);
  login.searchParams.set("next", location.href);
  const old = `This is Airflow ${version}, whose API takes no session of a browser: Airflow ${COOKIE_SINCE} or newer does.`;
  if (error.status !== 401) tell(error.message);
  else if (version === "3.1.0") tell(error.message, ". ", old);
  else tell(error.message, ". ", element("a", { href: login.href }, "Sign in to Airflow"));
}

async function refresh(reader) {
  clearTimeout(timer);
  const own = ++turn;
  let again = true;
  try {
    const seen = await reader.read();
    show(seen, reader);
    again = isLive(seen);
    tell(`As of ${new Date().toLocaleTimeString("sv")}${again ? ", read anew every 5 seconds" : ""}`);
  } catch (error) {
    await refused(error);
    again = !(error.status >= 400 && error.status < 500); // a refusal stays one; an Airflow that restarts comes back
  }
  if (again && own === turn && !document.hidden) timer = setTimeout(refresh, REFRESH, reader);
}

function start() {
  page.replaceChildren(
    element("header", {}, element("h1", { id: "name" }, "Training"), element("p", { id: "run", class: "quiet" })),
    element("p", { id: "status", role: "status" }, "Asking Airflow …"),
  );
  if (!task.dagId || !task.runId || !task.taskId) {
    tell("The address names no task: it has dag_id, run_id, task_id and, of a mapped task, map_index.");
    return;
  }
  const reader = new TaskReader(task);
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh(reader)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("resize", resize);
  const back = element("a", { href: new URL(reader.page, BASE).href }, "The task in Airflow");
  page.querySelector("header").append(element("p", {}, back));
  refresh(reader);
}

start();
