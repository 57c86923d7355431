// A Node tool that asks by the proxy that its environment names: a newer Node looks there by
// itself, an older one has to be told.

import http from "node:http";

const [major, minor] = process.versions.node.split(".").map(Number);
const looks = major > 24 || (major === 24 && minor >= 5) || (major === 22 && minor >= 21);

function asked(at, word) {
  const url = `http://${at}/${word}`;
  if (looks) return url;
  const { hostname, port } = new URL(process.env.HTTP_PROXY);
  return { hostname, port, path: url, headers: { host: at } };
}

export function run({ at, word }) {
  return new Promise((resolve, reject) => {
    const request = http.get(asked(at, word), (reply) => {
      let said = "";
      reply.on("data", (more) => (said += more));
      reply.on("end", () => resolve({ status: reply.statusCode, said }));
    });
    request.on("error", reject);
  });
}
