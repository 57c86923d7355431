"""A tool service with the standard library alone: what people write by hand for this protocol.

It says its port on stdout and answers POSTs of any path until it is told to stop.
"""

import json
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def greet(payload: dict) -> dict:
    return {"message": f"Hello {payload['name']}"}


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one write

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            if request.get("protocol_version") != 1:
                raise ValueError("protocol_version must be 1")
            reply = {"ok": True, "result": greet(request["payload"])}
        except Exception as error:
            reply = {"ok": False, "error": {"type": type(error).__name__, "message": str(error)}}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    service.daemon_threads = True
    print(service.server_address[1], flush=True)
    service.serve_forever()


main()
