// The inspect page: a slider over the steps of a session. The server draws, this file chooses.
import { $, find, findAt } from "./dom.js";

const session = document.body.dataset.session;
const slider = $("slider");
const PLAY_MS = 900;
const POLL_MS = 1000; // while variants run
let wanted = Number(slider.value);
let loading = false;
let timer = 0;
const query = new URLSearchParams(location.search);
const options = { chart_range: query.get("chart_range") ?? "turn", view: query.get("view") ?? "sent" };

async function show() {
  if (loading) return;
  loading = true;
  let shown = "";
  const address = () => new URLSearchParams({ step: String(wanted), ...options }).toString();
  while (shown !== address()) {
    shown = address();
    const response = await fetch(`/inspect/${session}/step?${shown}`).catch(() => null);
    if (!response?.ok) {
      showToast("The server does not answer; try again in a moment.");
      break;
    }
    $("toast").hidden = true;
    const parts = await response.json();
    for (const name of ["marks", "at", "plots", "sheet"]) $(name).innerHTML = parts[name];
    slider.setAttribute("aria-valuetext", $("at").textContent);
    history.replaceState(null, "", `?${shown}`);
  }
  loading = false;
}

function go(step) {
  wanted = Math.min(Number(slider.max), Math.max(1, step));
  slider.value = String(wanted);
  show();
}

function play() {
  if (timer) {
    clearInterval(timer);
    timer = 0;
    return;
  }
  if (wanted >= Number(slider.max)) go(1);
  timer = setInterval(() => {
    if (wanted >= Number(slider.max)) play();
    else go(wanted + 1);
  }, PLAY_MS);
}

const MOVES = {
  first: () => go(1),
  back: () => go(wanted - 1),
  on: () => go(wanted + 1),
  last: () => go(Number(slider.max)),
  play,
};

const BUTTONS = ["go", "fork", "range", "view", "step", "link", "again", "keep", "stop-trial", "close"]
  .map((name) => `[data-${name}]`).join();

slider.addEventListener("input", () => go(Number(slider.value)));
document.addEventListener("click", (event) => {
  const button = findAt(event, BUTTONS);
  if (!button) return;
  const data = button.dataset;
  if (data.go) MOVES[data.go]();
  else if (data.range) choose("chart_range", data.range);
  else if (data.view) choose("view", data.view);
  else if (data.step) showCost(Number(data.step));
  else if ("link" in data) copyLink(button);
  else if ("again" in data) openTrial(data);
  else if (data.keep) showTrial("PUT", { keep: data.keep });
  else if ("stopTrial" in data) showTrial("DELETE");
  else if ("close" in data) $("dialog").close();
  else fork(data.fork);
});

// A click on a bar shows why the request cost that.
function showCost(step) {
  options.view = "cost";
  go(step);
}

// Of this step, with what is shown of it.
function copyLink(button) {
  const shown = new URLSearchParams({ step: String(wanted), ...options });
  const link = `${location.origin}/inspect/${session}?${shown}`;
  navigator.clipboard.writeText(link).then(() => {
    button.lastChild.textContent = "Copied";
  });
}

async function choose(name, value) {
  options[name] = value;
  await show();
  find(`[data-${name === "view" ? "view" : "range"}="${value}"]`)?.focus();
}

async function fork(turn) {
  const body = JSON.stringify({ before_turn: turn });
  const response = await fetch(`/fork/${session}`, { method: "POST", body });
  const answer = await response.json();
  if (answer.session) location.assign(`/session/${answer.session}`);
  else showToast(answer.problem);
}

// Run a turn again with something else (render/trial.py). The address of the dialog that is open,
// and the number of its latest request: no other is shown.
let trial = "";
let latestRequest = 0;

/** @param {DOMStringMap} data */
function openTrial(data) {
  const model = data.model ?? find("[data-model]")?.dataset.model ?? "";
  const fields = { turn: data.again ?? "", call: data.call ?? "", model };
  trial = `/trial/${session}?${new URLSearchParams(fields)}`;
  showTrial();
}

/** @param {string} method @param {object} [fields] */
async function showTrial(method = "GET", fields = undefined) {
  const body = fields && JSON.stringify(fields);
  const number = ++latestRequest;
  const response = await fetch(trial, { method, body }).catch(() => null);
  const answer = response ? await response.json() : { problem: "The server does not answer." };
  if (number !== latestRequest) return;
  const dialog = $("dialog");
  const alert = find("[role=alert]", dialog);
  if (answer.problem && dialog.open && alert) {
    alert.textContent = answer.problem;
    alert.hidden = false;
  } else if (answer.problem) showToast(answer.problem);
  else if (dialog.open || method === "GET") {
    dialog.innerHTML = answer.html;
    if (!dialog.open) dialog.showModal();
    if (find("[data-trial-runs]", dialog)) setTimeout(pollTrial, POLL_MS, number);
  }
}

/** @param {number} number */
function pollTrial(number) {
  if ($("dialog").open && number === latestRequest) showTrial();
}

$("dialog").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  showTrial("POST", Object.fromEntries(new FormData(form)));
});

function showToast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (findAt(event, "input:not([type=range]), textarea, summary, button, dialog")) return;
  const keys = {
    ArrowLeft: MOVES.back,
    ArrowRight: MOVES.on,
    Home: MOVES.first,
    End: MOVES.last,
    " ": play,
    f: () => find("[data-fork]")?.click(),
  };
  const move = keys[event.key] ?? keys[event.key.toLowerCase()];
  if (!move) return;
  event.preventDefault();
  move();
});

$("live").textContent = "";
$("live").hidden = true;
