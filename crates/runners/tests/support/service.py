"""A tool service in the style of the protocol's first implementation, that does as it is told.

Prints its port, then each request as one JSON line. A payload's `do` says how to answer; a
PUT sets the answer to handshakes.
"""

import json
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANDSHAKE = {"status": 404, "body": ""}
CONNECTIONS = []


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        CONNECTIONS.append(self.connection)
        self.number = len(CONNECTIONS)

    def log_message(self, *_):
        pass

    def do_PUT(self):
        HANDSHAKE.update(json.loads(self.body()))
        self.answer(200, "{}")

    def do_POST(self):
        text = self.body()
        if self.path == "/capabilities/handshake":
            self.tell(text)
            return self.answer(HANDSHAKE["status"], HANDSHAKE["body"])
        self.tell(text)
        payload = json.loads(text)["payload"]
        getattr(self, "act_" + payload["do"])(payload)

    def act_echo(self, payload):
        self.answer(200, json.dumps({"ok": True, "result": payload}))

    def act_reply(self, payload):
        self.answer(payload.get("status", 200), payload["text"])

    def act_hang(self, _):
        # Ends when the other side closes.
        rest = self.connection.recv(1)
        print(json.dumps({"closed": rest == b""}), flush=True)
        self.close_connection = True

    def act_hang_up(self, _):
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def act_part(self, _):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        self.wfile.flush()
        self.act_hang_up(_)

    def act_leave(self, payload):
        """Answers, and closes without having said so."""
        self.act_echo(payload)
        self.act_hang_up(payload)
        print(json.dumps({"left": True}), flush=True)

    def tell(self, text):
        request = {
            "path": self.path,
            "connection": self.number,
            "authorization": self.headers.get("Authorization"),
            "type": self.headers.get("Content-Type"),
            "body": json.loads(text),
        }
        print(json.dumps(request), flush=True)

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"])).decode()

    def answer(self, status, text):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    if len(sys.argv) > 1:  # a certificate with its key
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
