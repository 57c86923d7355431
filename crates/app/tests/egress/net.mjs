// A Node tool that asks by the proxy that its environment names.

import http from "node:http";

export function run({ at, word }) {
  const { hostname, port } = new URL(process.env.HTTP_PROXY);
  const path = `http://${at}/${word}`;
  return new Promise((resolve, reject) => {
    const request = http.get({ hostname, port, path, headers: { host: at } }, (reply) => {
      let said = "";
      reply.on("data", (more) => (said += more));
      reply.on("end", () => resolve({ status: reply.statusCode, said }));
    });
    request.on("error", reject);
  });
}
