// The work page: shows what the server sends, sends what the user does.
import { Blocks } from "./blocks.js";
import { Connection } from "./connection.js";
import { showDiff } from "./diffs.js";
import { Outbox } from "./outbox.js";

const session = document.body.dataset.session;
const $ = (id) => document.getElementById(id);
const READ_MS = 500; // a question has to be in view for so long before a key answers it
const KEPT_REGIONS = ["questions"]; // what the user types into them must not be lost
let position = null;
let attachments = [];
let questionsShownAt = 0;

if ($("blocks")) start();

function start() {
  const blocks = new Blocks($("blocks"));
  const connection = new Connection(session, {
    onMessage: (message) => receive(message, blocks, outbox),
    onState: showConnection,
    getPosition: () => position,
  });
  const outbox = new Outbox(session, (message) => connection.send(message));
  const send = (message) => {
    if (!connection.send(message)) showToast("Not connected; try again in a moment.");
  };

  const showState = showConnection;
  connection.onState = (state, left) => {
    showState(state, left);
    if (state === "connected") outbox.flush();
  };

  // --- the prompt
  const prompt = $("prompt");
  prompt.value = sessionStorage.getItem(`draft-${session}`) ?? "";
  prompt.addEventListener("input", () => {
    sessionStorage.setItem(`draft-${session}`, prompt.value);
    resizePrompt();
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  });
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });

  function submit() {
    const text = prompt.value.trim();
    if (!text && !attachments.length) return;
    if (attachments.some((one) => !one.id)) return showToast("An attachment is still on its way.");
    outbox.add(text, attachments.map((one) => one.id));
    attachments = [];
    drawAttachments();
    fillPrompt("");
    $("scroll").scrollTop = 0;
  }

  // --- attachments
  $("attach-button").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", (event) => attachAll(event.target.files));
  document.addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) {
      event.preventDefault();
      attachAll(event.clipboardData.files);
    }
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    attachAll(event.dataTransfer.files);
  });

  // --- clicks
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button, [data-copy]");
    if (!button) return;
    const data = button.dataset;
    if (data.answer) answer(button.closest(".ask"), data.answer);
    else if ("copy" in data) copyCode(button);
    else if (data.diff) switchDiff(button);
    else if (data.withdraw) send({ do: "withdraw", index: Number(data.withdraw) });
    else if (data.ask) send({ do: "ask", dialog: data.ask, turn: data.turn ?? "" });
    else if ("close" in data) $("dialog").close();
    else if (data.filter !== undefined) filterList(data.filter);
    else if (data.do) act(data, button);
  });

  function act(data, button) {
    const files = [...(button.closest("dialog")?.querySelectorAll("[data-include]:checked") ?? [])];
    const include = files.map((box) => box.dataset.include);
    const messages = {
      mode: () => ({ do: "mode", mode: data.value }),
      model: () => ({ do: "model", model: data.value }),
      restore: () => ({ do: "restore", action: data.action, include }),
      rewind: () => ({ do: "rewind", turn: data.turn, files: data.files === "yes", include }),
      fork: () => ({ do: "fork" }),
      trust: () => ({ do: "trust" }),
      resume: () => ({ do: "resume" }),
      ask_trust: () => ({ do: "ask", dialog: "trust" }),
    };
    send(messages[data.do]());
    if ($("dialog").open) $("dialog").close();
  }

  $("stop-button").addEventListener("click", () => send({ do: "interrupt" }));
  $("end-button").addEventListener("click", () => {
    $("scroll").scrollTop = 0;
  });
  $("earlier-button").addEventListener("click", () => {
    send({ do: "earlier", first: blocks.first });
  });
  $("scroll").addEventListener("scroll", () => {
    $("end-button").hidden = $("scroll").scrollTop > -200;
  });
  $("new-button").addEventListener("click", createSession);
  $("search").addEventListener("input", () => filterList());
  $("inspect-link").href = `/inspect/${session}`;
  $("keys-button")?.addEventListener("click", showKeys);

  // --- answers
  function answer(card, kind) {
    const question = Number(card.dataset.question);
    const value = (selector) => card.querySelector(selector)?.value ?? "";
    if (kind === "edit") {
      const editor = card.querySelector(".edit");
      editor.hidden = false;
      editor.querySelector("textarea").focus();
      return;
    }
    const message = { do: "answer", question, answer: kind };
    if (kind === "deny") message.text = value("[data-reason]");
    if (kind === "edited") {
      const field = card.querySelector("[data-argument]");
      message.arguments = { [field.dataset.argument]: field.value };
    }
    if (kind === "answer") {
      const chosen = [...card.querySelectorAll("[name=choice]:checked")].map((box) => box.value);
      const own = value("[data-own]").trim();
      if (own) chosen.push(own);
      if (!chosen.length) return showToast("Choose an answer, or write one.");
      message.text = chosen.join(", ");
    }
    send(message);
  }

  // --- keys
  const ANSWER_KEYS = { y: "once", a: "always", e: "edit", n: "deny" };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const field = event.target.closest("input, textarea, select");
    const isEmptyPrompt = event.target === prompt && !prompt.value && !attachments.length;
    if (event.key === "Escape" && !$("dialog").open) {
      if (field && field !== prompt) return field.blur();
      return send({ do: "interrupt" });
    }
    if (event.key === "Tab" && event.shiftKey && event.target === prompt) {
      event.preventDefault();
      return send({ do: "ask", dialog: "mode" });
    }
    if (field && !isEmptyPrompt) return;
    const card = document.querySelector(".ask");
    const kind = ANSWER_KEYS[event.key.toLowerCase()];
    if (card && kind && isReadable(card)) {
      const button = card.querySelector(`[data-answer="${kind}"]`);
      if (button) {
        event.preventDefault();
        return answer(card, kind);
      }
    }
    if (field) return;
    const keys = {
      "/": () => $("search").focus(),
      n: createSession,
      j: () => moveFocus(1),
      k: () => moveFocus(-1),
      "[": () => document.body.classList.toggle("no-rail"),
      "]": () => document.body.classList.toggle("no-side"),
      "?": showKeys,
    };
    const run = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (run) {
      event.preventDefault();
      run();
    } else if (event.key.length === 1) {
      prompt.focus();
    }
  });

  resizePrompt();
}

// --- what the server sends ------------------------------------------------------------------

function receive(message, blocks, outbox) {
  const handlers = {
    update: () => applyUpdate(message, blocks),
    list: () => showList(message),
    dialog: () => showDialog(message.html),
    message: () => showToast(message.text),
    problem: () => showToast(message.text),
    prompt: () => fillPrompt(message.text),
    received: () => outbox.confirm(message.id),
    earlier: () => showEarlier(message, blocks),
    go: () => goTo(message),
  };
  handlers[message.kind]?.();
}

function goTo(message) {
  if (message.is_replacement) {
    for (const name of ["outbox", "draft"]) {
      const kept = sessionStorage.getItem(`${name}-${session}`);
      if (kept) sessionStorage.setItem(`${name}-${message.session}`, kept);
    }
  }
  location.assign(`/session/${message.session}`);
}

function applyUpdate(update, blocks) {
  blocks.apply(update);
  position = [update.position[0], update.position[1], blocks.first];
  for (const [name, html] of Object.entries(update.regions ?? {})) setRegion(name, html);
  $("earlier").hidden = blocks.first === 0;
  document.body.classList.toggle("is-new", update.count === 0);
}

function setRegion(name, html) {
  const element = $(name);
  if (!element) return;
  if (KEPT_REGIONS.includes(name)) return setQuestions(element, html);
  const closed = new Set(
    [...element.querySelectorAll("details[data-panel]:not([open])")].map((one) => one.dataset.panel),
  );
  element.innerHTML = html;
  for (const panel of element.querySelectorAll("details[data-panel]")) {
    if (closed.has(panel.dataset.panel)) panel.open = false;
  }
  if (name === "now") $("stop-button").hidden = !html;
  if (name === "head") document.title = `${element.querySelector("h1").textContent} · Treadle`;
}

// A card that is shown already stays as it is, with what the user typed into it.
function setQuestions(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const wanted = [...template.content.children];
  const ids = new Set(wanted.map((card) => card.id));
  for (const card of [...element.children]) if (!ids.has(card.id)) card.remove();
  for (const card of wanted) {
    if (!$(card.id)) {
      element.append(card);
      questionsShownAt = performance.now();
    }
  }
}

function isReadable(card) {
  const box = card.getBoundingClientRect();
  const isVisible = box.top < innerHeight && box.bottom > 0 && !document.hidden;
  return isVisible && performance.now() - questionsShownAt > READ_MS;
}

function showList(message) {
  const list = $("list");
  const closed = new Set(
    [...list.querySelectorAll("details[data-panel]:not([open])")].map((one) => one.dataset.panel),
  );
  list.innerHTML = message.html;
  for (const one of list.querySelectorAll("details[data-panel]")) {
    if (closed.has(one.dataset.panel)) one.open = false;
  }
  $("waiting").className = message.waiting ? "count" : "";
  $("waiting").textContent = message.waiting || "";
  const title = document.title.replace(/^\(\d+\) /, "");
  document.title = message.waiting ? `(${message.waiting}) ${title}` : title;
  filterList();
}

let filter = "";
function filterList(chosen) {
  if (chosen !== undefined) {
    filter = chosen;
    for (const button of document.querySelectorAll("[data-filter]")) {
      button.setAttribute("aria-pressed", String(button.dataset.filter === filter));
    }
  }
  const words = $("search").value.toLowerCase();
  for (const row of $("list").querySelectorAll("li[data-state]")) {
    const fits = !filter || row.dataset.state === filter;
    row.hidden = !(fits && row.textContent.toLowerCase().includes(words));
  }
  for (const rest of $("list").querySelectorAll(".rest")) if (words || filter) rest.open = true;
  for (const folder of $("list").querySelectorAll(".folder")) {
    folder.hidden = !folder.querySelector("li[data-state]:not([hidden])");
  }
}

function showEarlier(message, blocks) {
  blocks.prepend(message.blocks);
  position = position && [position[0], position[1], blocks.first];
  $("earlier").hidden = blocks.first === 0;
}

function showConnection(state, left) {
  const live = $("live");
  const texts = {
    connected: "Connected",
    waiting: `Reconnecting, ${left} s`,
    refused: "Not connected",
  };
  live.textContent = texts[state];
  live.classList.toggle("is-off", state !== "connected");
}

// --- small parts ----------------------------------------------------------------------------

function showDialog(html) {
  const dialog = $("dialog");
  dialog.innerHTML = html;
  if (!dialog.open) dialog.showModal();
  dialog.querySelector("[aria-current], .btn.first, button")?.focus();
}

function showKeys() {
  const keys = [
    ["Enter", "send"], ["Shift+Enter", "new line"], ["Esc", "stop the turn"],
    ["Shift+Tab", "change the mode"], ["Y A E N", "answer a question, with an empty prompt"],
    ["/", "search"], ["N", "new session"], ["J K", "next and previous item"],
    ["[ ]", "hide the columns"], ["?", "this list"],
  ];
  const rows = keys.map(([key, text]) => `<li><kbd>${key}</kbd> ${text}</li>`).join("");
  const close = '<div class="row"><button class="btn" type="button" data-close>Close</button></div>';
  showDialog(`<h2 id="dialog-title">Keys</h2><ul class="files">${rows}</ul>${close}`);
}

let toastTimer = 0;
function showToast(text) {
  const toast = $("toast");
  toast.textContent = text;
  toast.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    toast.hidden = true;
  }, 8000);
}

function fillPrompt(text) {
  const prompt = $("prompt");
  prompt.value = text;
  sessionStorage.setItem(`draft-${session}`, text);
  resizePrompt();
  if (text) prompt.focus();
}

function resizePrompt() {
  const prompt = $("prompt");
  const lines = prompt.value.split("\n").length;
  prompt.rows = Math.min(12, lines);
}

function moveFocus(step) {
  const items = [...document.querySelectorAll("#blocks .item, #questions .item")];
  const at = items.indexOf(document.activeElement.closest?.(".item"));
  const next = items[at < 0 ? items.length - 1 : Math.max(0, Math.min(items.length - 1, at + step))];
  if (!next) return;
  const target = next.querySelector("summary, button, a") ?? next;
  if (target === next) next.tabIndex = -1;
  target.focus();
  next.scrollIntoView({ block: "nearest" });
}

async function createSession() {
  const response = await fetch("/new", { method: "POST", body: "" });
  const answer = await response.json();
  if (answer.session) location.assign(`/session/${answer.session}`);
  else showToast(answer.problem);
}

async function attachAll(files) {
  for (const file of files) {
    const one = { name: file.name, size: file.size, id: "" };
    attachments.push(one);
    drawAttachments();
    try {
      const address = `/upload?name=${encodeURIComponent(file.name)}`;
      const response = await fetch(address, { method: "POST", body: file });
      const answer = await response.json();
      if (!answer.id) throw new Error(answer.problem);
      one.id = answer.id;
    } catch (error) {
      attachments = attachments.filter((other) => other !== one);
      showToast(error.message);
    }
    drawAttachments();
  }
}

function drawAttachments() {
  const list = $("attach");
  list.replaceChildren(
    ...attachments.map((one) => {
      const row = document.createElement("li");
      row.className = "shot";
      const size = document.createElement("span");
      size.className = "dim";
      size.textContent = one.id ? `${Math.ceil(one.size / 1000)} kB` : "on its way";
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "icon tiny";
      remove.setAttribute("aria-label", `Remove ${one.name}`);
      remove.textContent = "×";
      remove.addEventListener("click", () => {
        attachments = attachments.filter((other) => other !== one);
        drawAttachments();
      });
      row.append(` ${one.name} `, size, remove);
      return row;
    }),
  );
  list.hidden = !attachments.length;
}

function copyCode(button) {
  const code = button.closest(".code").querySelector("code").textContent;
  navigator.clipboard.writeText(code).then(() => {
    button.textContent = "Copied";
  });
}

function switchDiff(button) {
  const isSplit = button.dataset.diff === "split";
  for (const other of button.parentElement.children) {
    other.setAttribute("aria-pressed", String(other === button));
  }
  for (const table of button.closest(".ask").querySelectorAll("table.diff")) {
    showDiff(table, isSplit);
  }
}
