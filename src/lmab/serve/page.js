"use strict";
// The page asks /v1/summary and draws it; nothing is kept but the token, for as long as the tab is open.
const at = id => document.getElementById(id);
const esc = text => String(text).replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);
const num = (x, digits = 3) => x === null || x === undefined ? "–" : Number(x).toFixed(digits);
const percent = x => `${(100 * x).toFixed(1)}%`;
const counted = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const hue = index => index % 12;
const named = new URLSearchParams(location.search).get("experiment");  // the page of one experiment: /?experiment=NAME
const base = named ? `/v1/experiments/${encodeURIComponent(named)}` : "/v1";
let token = sessionStorage.getItem("lmab-token") || "", chosen = "";

async function get(path) {
  const answer = await fetch(path.replace(/^\/v1/, base), { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  const value = await answer.json();
  at("login").hidden = answer.status !== 401 && answer.status !== 403;
  if (!answer.ok) throw new Error(value.error || answer.status);
  return value;
}
function order(s) {  // versions in the order of their colours: the one in force first, then the canary
  const names = s.versions.map(v => v.version), first = [s.policy.active, s.policy.canary].filter(name => names.includes(name));
  return [...first, ...names.filter(name => !first.includes(name))];
}
function keys(names, s) {
  const role = name => name === s.policy.active ? " (in force)" : name === s.policy.canary ? " (canary)" : "";
  return `<p class=soft>${names.map((name, i) => `<span class=named><span class="key k${hue(i)}"></span>${esc(name)}${role(name)}</span> `).join("")}</p>`;
}
function day(seconds, width) {  // days are those of the store, which are days of UTC
  const when = new Date(1000 * seconds);
  return width >= 86400 ? when.toLocaleDateString([], { timeZone: "UTC" }) : when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}
function overTime(s, value, label) {
  const points = s.series.filter(p => p.sessions >= 5);
  if (new Set(points.map(p => p.at)).size < 2) return "<p class=soft>Nothing to draw yet: at least five sessions in each of two spans of time are needed.</p>";
  const names = order(s), wide = window.innerWidth < 700 ? 380 : 900, tall = 210;
  const xs = points.map(p => p.at), left = Math.min(...xs), right = Math.max(...xs, left + s.width);
  const top = Math.max(...points.map(p => value(p).high)), low = Math.min(0, ...points.map(p => value(p).low));
  const x = t => 40 + (wide - 55) * (t - left) / (right - left), y = v => 10 + (tall - 40) * (top - v) / ((top - low) || 1);
  const drawn = names.map((name, i) => {
    const own = points.filter(p => p.version === name), c = hue(i);
    if (!own.length) return "";
    const up = own.map(p => `${x(p.at)},${y(value(p).high)}`), down = own.map(p => `${x(p.at)},${y(value(p).low)}`).reverse();
    const line = own.map(p => `${x(p.at)},${y(value(p).mean)}`).join(" ");
    const dots = own.map(p => `<circle class="dot f${c}" cx="${x(p.at)}" cy="${y(value(p).mean)}" r="3"><title>${esc(name)}, ${day(p.at, s.width)}: ${num(value(p).mean)} (${num(value(p).low)} to ${num(value(p).high)}), ${counted(p.sessions, "session")}</title></circle>`).join("");
    return `<polygon class="band f${c}" points="${[...up, ...down].join(" ")}"></polygon><polyline class="line s${c}" points="${line}"></polyline>${dots}`;
  }).join("");
  return `<svg viewBox="0 0 ${wide} ${tall}" role="img" aria-label="${label}"><line class="axis" x1="40" x2="${wide - 15}" y1="${y(low)}" y2="${y(low)}"></line>
    <text x="36" y="${y(top) + 4}" text-anchor="end">${num(top, 2)}</text><text x="36" y="${y(low) + 4}" text-anchor="end">${num(Math.abs(low) < 0.05 ? 0 : low, 1)}</text>
    <text x="40" y="${tall - 6}">${day(left, s.width)}</text><text x="${wide - 15}" y="${tall - 6}" text-anchor="end">${day(Math.max(...xs), s.width)}</text>${drawn}</svg>${keys(names, s)}
    <p class=soft>Means with 95% bands, for each ${s.width >= 86400 ? "day" : s.width >= 3600 ? "hour" : "minute"} in which sessions began.</p>`;
}
function rewards(s) {
  if (!s.versions.length) return "<p class=soft>No session has begun yet.</p>";
  const names = order(s), versions = names.map(name => s.versions.find(v => v.version === name)).map(v => v.sessions < 30 ? { ...v, few: true, low: v.mean, high: v.mean } : v);
  const low = Math.min(0, ...versions.map(v => v.low)), high = Math.max(...versions.map(v => v.high), 0.001);
  const x = v => 10 + 330 * (v - low) / (high - low);
  const rows = versions.map((v, i) => {
    const y = 34 + 62 * i, c = hue(i), role = v.version === s.policy.active ? "in force" : v.version === s.policy.canary ? `canary, ${percent(s.policy.share)}` : "";
    return `<text x="10" y="${y - 20}">${esc(v.version)}${role ? `, ${role}` : ""}</text>
      <text x="10" y="${y - 5}">${num(v.mean)}${v.few ? "" : ` (${num(v.low)} to ${num(v.high)})`}, ${counted(v.sessions, "session")}</text>
      <rect class="back" x="10" y="${y + 2}" width="330" height="8" rx="2"></rect>
      <rect class="f${c}" x="${x(v.low)}" y="${y + 3}" width="${Math.max(x(v.high) - x(v.low), 1)}" height="6"></rect>
      <circle class="dot f${c}" cx="${x(v.mean)}" cy="${y + 6}" r="6"></circle>`; }).join("");
  return `<svg viewBox="0 0 350 ${62 * versions.length}" role="img" aria-label="reward per session with 95% intervals">${rows}</svg>
    <p class=soft>Mean and 95% interval (from 30 sessions on) of the sessions of the last 30 days, from ${num(low, 1)} to ${num(high, 2)}. Versions ran on different days: the canary is judged within days, beside this.</p>`;
}
function canary(s) {
  const c = s.canary;
  if (!c || !s.policy.canary || c.version !== s.policy.canary) return "<p class=soft>No version is tested now.</p>";
  const nights = c.nights, about = `<p>${esc(c.version)} gets ${percent(s.policy.share)} of new sessions. It differs from ${esc(s.policy.active)} in ${percent(c.differ)} of them.</p>`;
  const need = `<p class=soft>A gain of 2% would be seen after about ${Math.round(c.needed).toLocaleString("en")} sessions at 20%.</p>`;
  if (!nights.length) return `${about}<p class=soft>The first refit after its start will look at it.</p>${need}`;
  const top = Math.max(0, ...nights.map(n => n.gain)), span = Math.max(...nights.slice(-3).flatMap(n => [n.high, -n.low]), 1e-6);
  const reach = Math.max(span * 1.3, top), clip = v => Math.max(-reach, Math.min(reach, v));
  const x = i => 30 + 300 * (i + 0.5) / nights.length, y = v => 80 - 65 * clip(v) / reach;
  const bars = nights.map((n, i) => `<rect class="f1 band" x="${x(i) - 4}" width="8" y="${y(n.high)}" height="${Math.max(y(n.low) - y(n.high), 1)}"></rect><circle class="dot f1" cx="${x(i)}" cy="${y(n.gain)}" r="4"><title>night ${i + 1}: ${num(n.gain, 4)} (${num(n.low, 4)} to ${num(n.high, 4)}), ${n.n_new} and ${n.n_old} sessions</title></circle>`).join("");
  const last = nights[nights.length - 1];
  return `${about}<svg viewBox="0 0 350 165" role="img" aria-label="gain of the canary by night, with bounds"><line class="zero" x1="25" x2="345" y1="80" y2="80"></line><text x="22" y="84" text-anchor="end">0</text>${bars}
    <text x="30" y="160">night 1</text><text x="335" y="160" text-anchor="end">night ${nights.length}</text></svg>
    <p>Now ${num(last.gain, 4)} a session (${num(last.low, 4)} to ${num(last.high, 4)}), from ${counted(last.n_new, "session")} beside ${last.n_old.toLocaleString("en")}.</p>
    <p class=soft>The bounds hold at all nights together: above 0 it is promoted, below 0 it is withdrawn. From night 14 on bounds within 2% of a session decide, too.</p>${need}`;
}
function minutes(counts) {
  const top = Math.max(...counts, 1);
  const bars = counts.map((n, i) => `<rect class="bar" x="${5 + i * 5.7}" y="${95 - 85 * n / top}" width="4.7" height="${85 * n / top}"></rect>`).join("");
  return `<svg viewBox="0 0 350 112" role="img" aria-label="new sessions per minute">${bars}<line class="axis" x1="5" x2="347" y1="95" y2="95"></line>
    <text x="5" y="109">60 minutes ago</text><text x="345" y="109" text-anchor="end">now</text><text x="345" y="10" text-anchor="end">most: ${top}</text></svg>`;
}
function decisions(s) {
  const rows = s.versions.map(v => `<tr><td>${esc(v.version)}</td><td>${percent(v.explored)}</td><td class="${v.fallback > 0 ? "bad" : ""}">${percent(v.fallback)}</td><td>${num(v.length.mean, 2)}</td></tr>`).join("");
  const time = x => `${(1000 * x).toFixed(1)} ms`;
  return `<p><span class=big>${s.sessions.toLocaleString("en")}</span> <span class=soft>sessions in 30 days</span></p>
    <p>${s.latency.p50 === null ? "No answer was timed since the start." : `Half are answered within ${time(s.latency.p50)}, 99% within ${time(s.latency.p99)}.`}</p>
    <table><tr><th>version</th><th>explored</th><th>fallbacks</th><th>steps</th></tr>${rows}</table>`;
}
function refits(nights) {
  if (!nights.length) return "<p class=soft>None yet: <code>lmab refit</code> makes the next version.</p>";
  return nights.slice(0, 3).map(n => `<p><b class="${n.outcome === "withdrawn" ? "bad" : n.outcome === "promoted" || n.outcome === "canary" ? "good" : ""}">${esc(n.outcome)}</b>
    <span class=soft>${new Date(1000 * n.at).toLocaleString()}</span></p>${n.lines.map(l => `<p class=soft>${esc(l)}</p>`).join("")}`).join("");
}
function left(share) {
  return share === null ? "<td>–</td>" : `<td class=cell data-share="${share}">${percent(share)}</td>`;
}
function arms(s) {
  if (!s.arms.length) return "<p class=soft>Nothing was played yet.</p>";
  const head = s.by_step.map((_, step) => `<th>step ${step}</th>`).join(""), gone = new Set(s.withdrawn);
  const rows = s.arms.map((name, a) => `<tr><td>${gone.has(name) ? `<span class="gone">${esc(name)}</span> <span class=soft>withdrawn</span>` : esc(name)}</td>${s.by_step.map((row, step) => {
    const share = row[a] / Math.max(s.per_step[step], 1);
    return `<td class=cell data-share="${share}">${percent(share)}</td>`; }).join("")}${left(s.left[a])}</tr>`).join("");
  const others = s.withdrawn.filter(name => !s.arms.includes(name));
  return `<table><tr><th>arm</th>${head}<th>left after it</th></tr>${rows}</table>
    <p class=soft>Left after it: the share of its plays after which half an hour passed without another step, of all but the last step of the longest sessions.</p>${others.length ? `<p class=soft>Withdrawn, too: ${others.map(esc).join(", ")}.</p>` : ""}`;
}
function known(k) {
  const worth = k.worth === null ? "" : `<p>Knowing it is worth ${num(k.worth)} per session on the model: so much more does the plan in force guarantee than if it took everybody for the average person.</p>`;
  const keep = k.keep === null ? "" : `<p>Who comes back has kept the type with probability ${num(k.keep, 2)}; else it is drawn anew.</p>`;
  const tables = k.columns.map(column => {
    const head = column.values[0][1].map((_, m) => `<th>type ${m + 1}</th>`).join("");
    const rows = column.values.map(([value, shares]) => `<tr><td>${esc(value)}</td>${shares.map(share => `<td class=cell data-share="${share}">${percent(share)}</td>`).join("")}</tr>`).join("");
    return `<table><tr><th>${esc(column.name)}</th>${head}</tr>${rows}</table>`; }).join("");
  return `${worth}${keep}${tables}${tables ? `<p class=soft>Shares of the types by value; other columns are those of the average person.${esc(k.columns.map(column => column.remark && " " + column.remark).join(""))}</p>` : ""}`;
}
function shade() {  // styles are set by the script, because the page allows none in its text
  for (const cell of document.querySelectorAll("[data-share]")) cell.style.background = `color-mix(in srgb, var(--c0) ${Math.round(70 * cell.dataset.share)}%, transparent)`;
}
function belief(shares) {
  if (shares === null) return "–";
  let from = 0;
  const parts = shares.map((p, i) => { const part = `<rect class="f${hue(i)}" x="${120 * from}" y="0" width="${120 * p}" height="12"></rect>`; from += p; return part; }).join("");
  return `<svg class=belief viewBox="0 0 120 12" preserveAspectRatio="none"><title>${shares.map((p, i) => `type ${i + 1}: ${percent(p)}`).join(", ")}</title>${parts}</svg>`;
}
async function history(name) {
  if (!name) return;
  try {
    const s = await get(`/v1/sessions/${encodeURIComponent(name)}`);
    const rows = s.steps.map(p => `<tr><td>${p.step}</td><td>${belief(p.belief)}</td><td>${esc(p.label)}</td><td>${num(p.reward, 2)}</td><td>${num(p.propensity)}</td><td class=why>${esc(p.why)}</td></tr>`).join("");
    const types = s.belief ? `<p class=soft>${s.belief.map((_, i) => `<span class=named><span class="key k${hue(i)}"></span>type ${i + 1}</span> `).join("")}</p>` : "";
    at("history").innerHTML = `<p class=soft>${esc(s.session)}, version ${esc(s.policy)}${s.person ? `, person ${esc(s.person)}` : ""}</p>${types}
      <table><tr><th>step</th><th class=left>belief before</th><th>arm</th><th>reward</th><th>probability</th><th class=left>why</th></tr>${rows}
      <tr><td>now</td><td>${belief(s.belief)}</td><td></td><td></td><td></td><td></td></tr></table>`;
    at("history").classList.remove("soft");
  } catch (error) { at("history").textContent = error.message; }
}
async function refresh() {
  try {
    const s = await get("/v1/summary");
    at("state").textContent = `version ${s.policy.active} in force${s.policy.canary ? `, ${s.policy.canary} as canary` : ""}`;
    at("problem").textContent = "";
    at("series").innerHTML = overTime(s, p => p, "reward per session over time, by version");
    at("lengths").innerHTML = overTime(s, p => p.length, "steps per session over time, by version");
    at("rewards").innerHTML = rewards(s);
    at("canary").innerHTML = canary(s);
    at("minutes").innerHTML = minutes(s.per_minute);
    at("decisions").innerHTML = decisions(s);
    at("refits").innerHTML = refits(s.refits);
    at("arms").innerHTML = arms(s);
    at("before").hidden = !s.known;
    if (s.known) at("known").innerHTML = known(s.known);
    shade();
    at("recent").innerHTML = s.recent.map(name => `<option value="${esc(name)}">`).join("");
    await history(chosen || s.recent[0]);
  } catch (error) { at("problem").textContent = error.message; }
}
at("login").addEventListener("submit", event => { event.preventDefault(); token = at("token").value; sessionStorage.setItem("lmab-token", token); refresh(); });
at("show").addEventListener("click", () => { chosen = at("session").value.trim(); history(chosen); });
refresh();
setInterval(refresh, 5000);
