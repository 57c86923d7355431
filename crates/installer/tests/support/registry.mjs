// A registry of npm for tests: prints its port, then serves the packages of the JSON text of its
// standard input: { name: { version: { manifest, files, resolved?, integrity? } } }.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { gzipSync } from 'node:zlib';

function header(name, size, mode) {
  const block = Buffer.alloc(512);
  const put = (at, text) => block.write(text, at, 'latin1');
  put(0, `package/${name}`);
  put(100, mode.toString(8).padStart(7, '0'));
  put(108, '0000000');
  put(116, '0000000');
  put(124, size.toString(8).padStart(11, '0'));
  put(136, '00000000000');
  put(148, '        ');
  put(156, '0');
  put(257, 'ustar\u000000');
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, `${sum.toString(8).padStart(6, '0')}\u0000 `);
  return block;
}

function archive(files) {
  const parts = [];
  for (const [name, text] of Object.entries(files)) {
    const bytes = Buffer.from(text);
    parts.push(header(name, bytes.length, 0o755), bytes);
    parts.push(Buffer.alloc((512 - (bytes.length % 512)) % 512));
  }
  parts.push(Buffer.alloc(1024));
  return gzipSync(Buffer.concat(parts));
}

const answers = new Map();
const server = createServer((request, response) => {
  const answer = answers.get(decodeURIComponent(request.url));
  response.writeHead(answer ? 200 : 404);
  response.end(answer ?? '{}');
});
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address();
  const origin = `http://localhost:${port}`;
  for (const [name, versions] of Object.entries(JSON.parse(readFileSync(0, 'utf8')))) {
    const all = {};
    for (const [version, { manifest, files, resolved, integrity }] of Object.entries(versions)) {
      const own = { name, version, ...manifest };
      const bytes = archive({ 'package.json': JSON.stringify(own), ...files });
      const path = `/${name}/-/${version}.tgz`;
      answers.set(path, bytes);
      const digest = createHash('sha512').update(bytes).digest('base64');
      all[version] = {
        ...own,
        dist: {
          tarball: resolved ?? origin + path,
          integrity: integrity ?? `sha512-${digest}`,
        },
      };
    }
    const latest = Object.keys(all).at(-1);
    answers.set(`/${name}`, JSON.stringify({ name, 'dist-tags': { latest }, versions: all }));
  }
  console.log(port);
});
