"""Tools that try to reach somebody, once with the standard library's own ways and once past them."""

import http.client
import json
import os
import socket
import subprocess
import sys
import urllib.request

PATIENCE_S = 10
# Where `leave` leaves somebody.
LEFT = ("127.0.0.1", 5353)


def run(asked):
    """What came of it, or why nothing did."""
    try:
        return {"said": ACTS[asked["what"]](asked)}
    except Exception as error:
        return {"error": "%s: %s" % (type(error).__name__, error)}


def plain(asked):
    """By the proxy that the environment names, if it names one."""
    with urllib.request.urlopen("http://%(at)s/%(word)s" % asked, timeout=PATIENCE_S) as reply:
        return reply.read().decode()


def tunnel(asked):
    """By CONNECT, as everything encrypted goes."""
    host, port = asked["at"].rsplit(":", 1)
    proxy = os.environ["HTTPS_PROXY"].replace("http://", "")
    connection = http.client.HTTPConnection(proxy, timeout=PATIENCE_S)
    connection.set_tunnel(host, int(port))
    connection.request("GET", "/" + asked["word"])
    return connection.getresponse().read().decode()


def parting(asked):
    """Asks and ends without waiting for an answer."""
    host, port = os.environ["HTTPS_PROXY"].replace("http://", "").split(":")
    request = b"CONNECT %s HTTP/1.1\r\n\r\n" % asked["at"].encode()
    for _ in range(20):
        socket.create_connection((host, int(port)), PATIENCE_S).sendall(request)
    return "gone"


def twice(asked):
    for _ in range(2):
        try:
            tunnel(asked)
        except OSError as error:
            last = error
    raise last


def direct(asked):
    """Past the proxy."""
    host, port = asked["at"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(b"GET /%s HTTP/1.1\r\n\r\n" % asked["word"].encode())
        return connection.recv(4096).decode()


def datagram(asked):
    """As a resolver is asked."""
    host, port = asked["at"].rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(PATIENCE_S)
        # Connected, so that it hears that nobody is there.
        asker.connect((host, int(port)))
        asker.send(asked["word"].encode())
        return asker.recv(4096).decode()


def raw(asked):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP).close()
    return "made"


def name(asked):
    return str(socket.getaddrinfo(asked["at"], 443))


COUNTED = []


def count(asked):
    """How many calls this process has counted."""
    COUNTED.append(1)
    return len(COUNTED)


def leave(asked):
    """Leaves somebody behind who answers on the loopback; that they do is seen first."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(LEFT)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                word, sender = listener.recvfrom(100)
                listener.sendto(word, sender)
        os._exit(0)
    os.wait()
    listener.close()
    return find(asked)


def find(asked):
    try:
        return "reached" if datagram({"at": "%s:%d" % LEFT, "word": "who"}) == "who" else "somebody"
    except OSError:
        return "nobody"


def hold(asked):
    subprocess.run(["sleep", "86400.%s" % asked["word"]])


ACTS = {
    act.__name__: act
    for act in (plain, tunnel, parting, twice, direct, datagram, raw, name, count, leave, find, hold)
}

if __name__ == "__main__":
    json.dump(run(json.loads(sys.stdin.read())), sys.stdout)
