// Asks for decisions with the fetch of node.
const [url, n] = process.argv.slice(2);
let decided = 0;
for (let i = 0; i < Number(n); i++) {
  const body = JSON.stringify({ session: `node-${i}`, step: 0 });
  const answer = await fetch(url, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const told = await answer.json();
  if (answer.status === 200 && told.session === `node-${i}`) decided++;
}
console.log(decided);
