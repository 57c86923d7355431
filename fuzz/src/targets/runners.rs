//! What tools send: lines of workers, and requests to the egress proxy.

use callgate_runners::fuzzing;

use crate::cuts::cut;

/// Lines of a worker mean the same in whatever pieces they come.
pub fn worker_lines(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else {
        return;
    };
    if let Some((whole, parts)) = cut::<3>(rest) {
        fuzzing::worker_lines(how & 1 != 0, how & 2 != 0, whole, &parts);
    }
}

/// A request that the proxy passes on is one request, to the host that was checked, with the
/// client's own body behind it.
pub fn proxy_heads(input: &[u8]) {
    let Some((host, _, first)) = fuzzing::proxy_request(input) else {
        return;
    };
    assert!(!host.is_empty());
    let Some(first) = first else { return };
    let mut fields = [httparse::EMPTY_HEADER; 256];
    let mut request = httparse::Request::new(&mut fields);
    let end = match request.parse(&first) {
        Ok(httparse::Status::Complete(end)) => end,
        // More fields than there is room for, or a method or path that servers refuse.
        Err(_) => return,
        Ok(httparse::Status::Partial) => panic!("the head has no end"),
    };
    let body = input
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|at| at + 4);
    assert_eq!(&first[end..], &input[body.expect("a head ends")..]);
    let of = |name: &str| -> Vec<&[u8]> {
        let named = request
            .headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value).collect()
    };
    assert_eq!(of("connection"), [b"close".as_slice()]);
    let [place] = of("host")[..] else {
        panic!("one host");
    };
    assert!(place.starts_with(host.as_bytes()), "{host}");
    assert!(of("proxy-authorization").is_empty());
    assert!(of("content-length").len() + of("transfer-encoding").len() <= 1);
}
