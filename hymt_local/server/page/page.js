// Joins the parts: what is typed, the two languages, the translation, and what is said about it.

import { ask, key, redeemCode } from "/page/api.js";
import { Documents } from "/page/documents.js";
import { TabHistory } from "/page/history.js";
import { setUpKeys } from "/page/keys.js";
import { Picker } from "/page/languages.js";
import { setUpTheme } from "/page/theme.js";
import { Translation } from "/page/translation.js";

const PAUSE_MS = 500;  // without a key before a text is translated while it is typed
const AUTO = { tag: "auto", native: "Detect language", english: "", chinese: "" };
const LOOPBACK = /^(localhost|127\..*|\[::1\])$/;
const at = (id) => document.getElementById(id);

const state = { languages: [], sourceLang: "auto", targetLang: "", detected: null, recent: [], timer: 0, startedAt: 0 };

const translation = new Translation({ loading, started, progress, finished, failed: fail, cancelled });
const picker = new Picker();
const tabHistory = new TabHistory({ restore, describe });
const documents = new Documents({ languages: () => state, fail });

setUpTheme();
setUp();

async function setUp() {
  if (!LOOPBACK.test(location.hostname)) at("promise").textContent = `Texts go to ${location.hostname}, and no further.`;
  restoreChoices();
  listen();
  try {
    await redeemCode();
  } catch (error) {
    connect(error.message);
    return;
  }
  await load();
}

async function load() {
  if (!key.get()) return connect();
  try {
    const [{ languages, model }, { data: models }] = await Promise.all([ask("/v1/languages"), ask("/v1/models")]);
    state.languages = languages;
    const is_demo = models.some(({ id, kind }) => id === model && kind === "demo");
    at("model").textContent = is_demo ? `${model}: knows its phrasebook only` : model;
    at("model").hidden = false;
    if (!nameOf(state.targetLang)) state.targetLang = likelyTarget();
    if (!nameOf(state.sourceLang)) state.sourceLang = "auto";
    showLanguages();
    at("source").focus();
    await documents.offerFormats(at("file"));
  } catch (error) {
    fail(error);
  }
}

function listen() {
  const actions = {
    translate, cancel, chooseSource, chooseTarget, swap, copy, openFile,
    openHistory: () => tabHistory.open(),
    openKeys: () => at("keys").showModal(),
    focusSource: () => at("source").focus(),
    focusTarget: () => at("target").focus(),
  };
  setUpKeys(actions);
  for (const [id, action] of Object.entries({
    "source-lang": chooseSource, "target-lang": chooseTarget, swap, copy, clear: clearText,
    translate: () => (translation.isRunning ? cancel() : translate()),
    "open-file": openFile, "open-history": actions.openHistory, "open-keys": actions.openKeys,
    "alert-close": hideAlert,
  })) at(id).addEventListener("click", action);
  at("source").addEventListener("input", typed);
  at("source").addEventListener("compositionend", typed);
  at("live").addEventListener("change", () => keep("hymt.live", at("live").checked ? "on" : "off"));
  at("connect-form").addEventListener("submit", useKey);
  for (const button of document.querySelectorAll("[data-close]"))
    button.addEventListener("click", () => button.closest("dialog").close());
  for (const sheet of document.querySelectorAll("dialog:not(#connect)"))
    sheet.addEventListener("click", (event) => event.target === sheet && sheet.close());  // the backdrop
  at("connect").addEventListener("cancel", (event) => event.preventDefault());
  documents.listen(at("file"), at("source").closest(".pane"));
}

// Translating

function typed(event) {
  const text = at("source").value;
  at("clear").hidden = text === "";
  at("count").textContent = text ? [...text].length.toLocaleString() : "";
  clearTimeout(state.timer);
  if (text.trim() === "") {
    translation.clear();
    forget();
  } else if (at("live").checked && !event?.isComposing) {
    state.timer = setTimeout(translate, PAUSE_MS);
  }
}

function translate() {
  clearTimeout(state.timer);
  const text = at("source").value;
  if (text.trim() === "" || !state.targetLang) return;
  hideAlert();
  state.startedAt = performance.now();
  showRunning(true);
  say("Translating…");
  translation.run({
    text,
    target_lang: state.targetLang,
    source_lang: state.sourceLang === "auto" ? null : state.sourceLang,
    priority: "interactive",
    stream: true,
  });
}

function cancel() {
  if (!translation.isRunning) return false;
  translation.cancel();
  return true;
}

function loading({ model, fraction }) {
  say(`Loading ${model}: ${Math.floor(fraction * 10) * 10} %`);  // in steps: screen readers read every change
}

function started(event) {
  state.detected = event.detected_confidence === null ? null : { tag: event.source_lang, confidence: event.detected_confidence };
  say("Translating…");
  showLanguages();
}

function progress(n_settled, n_segments) {
  if (n_segments > 3) at("count").textContent = `${n_settled} / ${n_segments}`;
}

function finished(event) {
  showRunning(false);
  const seconds = ((performance.now() - state.startedAt) / 1000).toFixed(1);
  say(event.failed.length ? refusal(event.failed) : `Done in ${seconds} s`);
  at("copy").disabled = false;
  at("target").lang = event.target_lang;
  tabHistory.add({
    source: at("source").value, target: event.text, sourceLang: event.source_lang, targetLang: event.target_lang,
  });
}

// Why parts kept their source text: without a pointer there is no other place to read it.
function refusal(failed) {
  const parts = failed.length === 1 ? "1 part was" : `${failed.length} parts were`;
  return `${parts} not translated: ${failed[0].error.message}`;
}

function cancelled() {
  showRunning(false);
  say("Stopped");
}

function fail(error) {
  showRunning(false);
  say("");
  if (error.status === 401) {
    key.drop();
    connect(error.message);
    return;
  }
  at("alert-message").textContent = error.message;
  at("alert-hint").textContent = error.hint ?? "";
  at("alert").hidden = false;
}

function clearText() {
  at("source").value = "";
  typed();
  at("source").focus();
}

function forget() {
  state.detected = null;
  at("copy").disabled = true;
  say("");
  hideAlert();
  showRunning(false);
  showLanguages();
}

async function copy() {
  if (!translation.text) return;
  await navigator.clipboard.writeText(translation.text);
  say("Copied");
}

function openFile() {
  at("file").click();
}

function restore(entry) {
  Object.assign(state, { sourceLang: entry.sourceLang, targetLang: entry.targetLang, detected: null });
  at("source").value = entry.source;
  showLanguages();
  typed();
  translate();
}

function describe({ sourceLang, targetLang }) {
  return `${nameOf(sourceLang) || sourceLang} → ${nameOf(targetLang) || targetLang}`;
}

// Languages

function chooseSource() {
  picker.open({
    title: "Translate from",
    languages: [AUTO, ...state.languages],
    recent: state.recent,
    chosen: state.sourceLang,
    choose: (tag) => setLanguages(tag, state.targetLang),
  });
}

function chooseTarget() {
  picker.open({
    title: "Translate into",
    languages: state.languages,
    recent: state.recent,
    chosen: state.targetLang,
    choose: (tag) => setLanguages(state.sourceLang, tag),
  });
}

function swap() {
  const source = state.sourceLang === "auto" ? state.detected?.tag : state.sourceLang;
  if (!source || !nameOf(source)) return say("Choose a source language first");
  const text = translation.text;
  if (text) at("source").value = text;
  setLanguages(state.targetLang, source);
}

function setLanguages(sourceLang, targetLang) {
  Object.assign(state, { sourceLang, targetLang, detected: null });
  state.recent = [...new Set([targetLang, sourceLang, ...state.recent])].filter((tag) => tag !== "auto").slice(0, 5);
  keep("hymt.choices", JSON.stringify({ sourceLang, targetLang, recent: state.recent }));
  showLanguages();
  typed();
  translate();
}

function showLanguages() {
  const { detected, sourceLang, targetLang } = state;
  const shown = sourceLang === "auto" && detected ? detected.tag : sourceLang;
  const [name, rest] = nameOf(shown) === AUTO.native ? AUTO.native.split(" ") : [nameOf(shown), ""];
  at("source-lang-name").textContent = name ?? "…";
  at("detected").textContent = rest || (shown === sourceLang ? "" : detected.confidence < 0.6 ? "detected?" : "detected");
  at("target-lang-name").textContent = nameOf(targetLang) || "…";
}

function nameOf(tag) {
  return tag === "auto" ? AUTO.native : state.languages.find((each) => each.tag === tag)?.english;
}

function likelyTarget() {
  const spoken = navigator.languages.map((locale) => locale.split("-")[0]);
  const other = [...spoken, "zh", "fr"].find((tag) => tag !== "en" && nameOf(tag));
  return other ?? state.languages[0]?.tag ?? "";
}

// Saying and keeping

function say(text) {
  if (at("status").textContent !== text) at("status").textContent = text;
}

function hideAlert() {
  at("alert").hidden = true;
}

function showRunning(is_running) {
  at("translate").classList.toggle("running", is_running);
  at("translate").title = is_running ? "Stop (Esc)" : "Translate now (Ctrl+Enter)";
  at("translate-label").textContent = is_running ? "Stop" : "Translate";
  if (is_running) at("copy").disabled = true;
  else at("count").textContent = at("source").value ? [...at("source").value].length.toLocaleString() : "";
}

function restoreChoices() {
  at("live").checked = localStorage.getItem("hymt.live") !== "off";
  try {
    Object.assign(state, JSON.parse(localStorage.getItem("hymt.choices")) ?? {});
  } catch {
    localStorage.removeItem("hymt.choices");
  }
}

function keep(name, value) {
  localStorage.setItem(name, value);
}

// The key

function connect(fault = "") {
  at("connect-fault").textContent = fault;
  if (!at("connect").open) at("connect").showModal();
}

async function useKey(event) {
  event.preventDefault();
  key.set(at("connect-key").value.trim());
  at("connect-key").value = "";
  at("connect").close();
  await load();
}
