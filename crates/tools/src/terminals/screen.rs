//! What a terminal shows, so that who attaches sees it at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use callgate_sandbox::TerminalSize;
use vt100::Parser;

/// Longest unfinished sequence that is kept.
const SEQUENCE_BYTES_MAX: usize = 4096;

/// Bytes that are not looked at before somebody wants to see them. Of what is printed fast the
/// most is never seen, and the more is looked at together, the more of it need not be.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// Pieces of it, which may be small.
const WAITING_MAX: usize = 1024;

/// Switches to the screen that full-screen programs draw on.
const ALTERNATE: &str = "\x1b[?1049h";

/// The screen of one session.
pub struct Screen {
    parser: Parser,
    size: TerminalSize,
    /// What was printed since, as the log has it too.
    waiting: Vec<Arc<str>>,
    waiting_bytes: usize,
    /// A control sequence whose end is still to come.
    unfinished: String,
    /// Only some of its lines may scroll.
    margins: bool,
}

impl Screen {
    pub fn new(size: TerminalSize) -> Self {
        Self {
            parser: Parser::new(size.rows, size.cols, 0),
            size,
            waiting: Vec::new(),
            waiting_bytes: 0,
            unfinished: String::new(),
            margins: false,
        }
    }

    /// Shows what was printed, sooner or later.
    pub fn feed(&mut self, text: Arc<str>) {
        self.waiting_bytes += text.len();
        self.waiting.push(text);
        if self.waiting_bytes > WAITING_BYTES_MAX || self.waiting.len() > WAITING_MAX {
            self.catch_up();
        }
    }

    /// Shows all that was printed.
    pub fn catch_up(&mut self) {
        let text = self.waiting.concat();
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.show(&text);
    }

    fn show(&mut self, text: &str) {
        let control = last_control(text.as_bytes());
        let (before, after) = self.parts(text, control);
        let parser = &mut self.parser;
        // What a program prints must not end us: a screen that it broke begins anew.
        let fed = catch_unwind(AssertUnwindSafe(|| {
            parser.process(before.as_bytes());
            parser.process(after.as_bytes());
        }));
        if fed.is_err() {
            self.parser = Parser::new(self.size.rows, self.size.cols, 0);
        }
        self.keep_unfinished(text, control);
    }

    /// What of `text` is worth looking at. Plain lines that others push off the screen at once are
    /// not: what is printed fast is mostly those, and looking at them is what costs.
    fn parts<'a>(&mut self, text: &'a str, control: Option<usize>) -> (&'a str, &'a str) {
        if control.is_some() || !self.unfinished.is_empty() {
            self.margins |= self.margins_in(text);
        }
        // Where a sequence has begun, what looks plain may belong to it.
        if self.margins || !self.unfinished.is_empty() {
            return (text, "");
        }
        // The sequence that begins there ends within its line.
        let plain = control.map_or(0, |at| at + 1);
        let plain = plain + text[plain..].find('\n').map_or(0, |at| at + 1);
        // Once to push off what was there, once to be there.
        let lines = 2 * usize::from(self.size.rows);
        let last = text[plain..].rmatch_indices("\r\n").nth(lines);
        match last {
            Some((at, end)) => (&text[..plain], &text[plain + at + end.len()..]),
            None => (text, ""),
        }
    }

    /// True if `text` may set margins, or end a sequence that does.
    fn margins_in(&self, text: &str) -> bool {
        let sequences = text.split('\x1b').skip(1);
        let sets = |sequence: &str| {
            let end = sequence.find(|c: char| !matches!(c, '[' | '0'..='9' | ';' | '?'));
            end.is_none_or(|end| sequence[end..].starts_with('r'))
        };
        sequences.into_iter().any(sets) || !self.unfinished.is_empty() && text.contains('r')
    }

    pub fn resize(&mut self, size: TerminalSize) {
        self.catch_up();
        self.size = size;
        let screen = self.parser.screen_mut();
        let resized = catch_unwind(AssertUnwindSafe(|| screen.set_size(size.rows, size.cols)));
        if resized.is_err() {
            self.parser = Parser::new(size.rows, size.cols, 0);
        }
    }

    /// What makes another terminal of this size look the same, and go on as this one would.
    pub fn snapshot(&mut self) -> String {
        self.catch_up();
        let screen = self.parser.screen();
        let switch = if screen.alternate_screen() {
            ALTERNATE
        } else {
            ""
        };
        let state = screen.state_formatted();
        let state = String::from_utf8_lossy(&state);
        format!("{switch}{state}{}", self.unfinished)
    }

    /// Who attaches in the middle of a control sequence needs its beginning to make sense of the
    /// rest. Nothing begins behind the last byte that is a control.
    fn keep_unfinished(&mut self, text: &str, control: Option<usize>) {
        let begun = control.and_then(|at| text[..=at].rfind('\x1b'));
        let kept = match begun {
            Some(at) => text[at..].to_owned(),
            None if self.unfinished.is_empty() => return,
            None => std::mem::take(&mut self.unfinished) + text,
        };
        let keep = kept.len() <= SEQUENCE_BYTES_MAX && !is_finished(&kept);
        self.unfinished = if keep { kept } else { String::new() };
    }
}

/// Where the last byte is that does more than to print, or to begin a line.
fn last_control(bytes: &[u8]) -> Option<usize> {
    let is_control = |byte: &u8| match byte {
        b'\r' | b'\n' | b'\t' => false,
        byte => matches!(byte, 0..0x20 | 0x7f),
    };
    let (rest, words) = bytes.as_rchunks::<8>();
    for (index, word) in words.iter().enumerate().rev() {
        if has_control(*word)
            && let Some(at) = word.iter().rposition(is_control)
        {
            return Some(rest.len() + index * 8 + at);
        }
    }
    rest.iter().rposition(is_control)
}

/// True if one of these is a control, of whatever kind. All at a time: most of what is printed
/// fast has none.
fn has_control(word: [u8; 8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    let word = u64::from_le_bytes(word);
    // No sum goes beyond its byte: the high bits are not in it.
    let low = word & (ONES * 0x7F);
    let from_space = low + ONES * (0x80 - 0x20);
    let delete = low + ONES;
    (!from_space | delete) & !word & (ONES * 0x80) != 0
}

/// True if a control sequence, which begins `text`, ends in it.
fn is_finished(text: &str) -> bool {
    let mut rest = text.bytes().skip(1);
    match rest.next() {
        None => false,
        Some(b'[') => rest.any(|byte| (0x40..=0x7e).contains(&byte)),
        // Texts for the terminal, such as its title.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => rest.any(|byte| byte == 7),
        Some(0x20..=0x2f) => rest.any(|byte| (0x30..=0x7e).contains(&byte)),
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: TerminalSize = TerminalSize { cols: 20, rows: 4 };

    /// What control sequences are made of.
    const ALPHABET: &[u8] = b"\x1b\x1b[[;;?0123456789ABCDHJKLMPXacdfhlmnrsu\r\n\t 7]\x07()";

    fn seen(snapshot: &str, rest: &str) -> String {
        let mut parser = Parser::new(SIZE.rows, SIZE.cols, 0);
        parser.process(snapshot.as_bytes());
        parser.process(rest.as_bytes());
        parser.screen().contents()
    }

    /// wherever one attaches, even in the middle of a control sequence, the screen is the
    /// one that somebody has who was there from the start.
    #[test]
    fn a_snapshot_goes_on_as_the_screen_would() {
        let text = "plain\r\n\x1b[1;31mred\x1b[0m\x1b]0;title\x07\x1b[?1049h\x1b[2J\x1b[H\x1b(B\
             over\x1b[3;5Hthere\x1b7\x1b[1;1H\x1b8é";
        let whole = seen("", text);
        assert!(whole.contains("there"), "{whole:?}");
        for (cut, _) in text.char_indices() {
            let mut screen = Screen::new(SIZE);
            screen.feed(text[..cut].into());
            if text[..cut].contains("\x1b7") {
                // A position saved before is not part of what is shown.
                continue;
            }
            assert_eq!(seen(&screen.snapshot(), &text[cut..]), whole, "at {cut}");
        }
    }

    /// What is not looked at makes no difference, whatever came before it.
    #[test]
    fn what_is_pushed_off_is_not_missed() {
        let mut state = 11_u32;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        let mut skipped = 0;
        for _ in 0..300 {
            let (mut screen, mut whole) = (Screen::new(SIZE), Parser::new(SIZE.rows, SIZE.cols, 0));
            for _ in 0..8 {
                let mut text = String::new();
                for _ in 0..next(4) {
                    let odd = [
                        "\x1b[H",
                        "\x1b[2;3Hxy",
                        "\x1b[31m",
                        "\x1b[?1049h",
                        "\x08",
                        "\x1b[",
                    ];
                    text.push_str(odd[next(6) as usize]);
                    text.push_str(&"é-".repeat(next(12) as usize));
                    text.push_str(["", "\n", "\r\n", "2;3r"][next(4) as usize]);
                }
                for _ in 0..next(30) {
                    text.push_str(&"ab中".repeat(next(9) as usize));
                    text.push_str(["\r\n", "\r\n", "\r\n", "\n"][next(4) as usize]);
                }
                text.push_str(&"z".repeat(next(30) as usize));
                skipped += usize::from(
                    !Screen::parts(&mut screen, &text, last_control(text.as_bytes()))
                        .1
                        .is_empty(),
                );
                screen.show(&text);
                whole.process(text.as_bytes());
                let (mine, theirs) = (screen.parser.screen(), whole.screen());
                assert_eq!(mine.state_formatted(), theirs.state_formatted(), "{text:?}");
            }
        }
        assert!(skipped > 300, "{skipped}");
    }

    /// however much waits to be looked at, whoever attaches sees all of it; and it is bounded,
    /// in small pieces and in large ones.
    #[test]
    fn what_waits_is_seen() {
        for (piece, count) in [("\x1b[3", 3 * WAITING_MAX), (&*"xy".repeat(10_000), 60)] {
            let (mut screen, mut whole) = (Screen::new(SIZE), Parser::new(SIZE.rows, SIZE.cols, 0));
            for number in 0..count {
                let text = format!("{piece}{}m{number}\r\n", number % 8);
                whole.process(text.as_bytes());
                screen.feed(text.into());
                assert!(screen.waiting_bytes <= WAITING_BYTES_MAX);
                assert!(screen.waiting.len() <= WAITING_MAX);
                if number % 100 == 50 {
                    assert_eq!(seen(&screen.snapshot(), ""), whole.screen().contents());
                }
            }
            assert_eq!(seen(&screen.snapshot(), ""), whole.screen().contents());
            assert!(screen.waiting.is_empty());
        }
    }

    /// Every byte at every place of a word, and before the first whole one.
    #[test]
    fn the_last_control_is_found() {
        for length in 0..=17 {
            assert_eq!(last_control(&vec![b'x'; length]), None);
            for (at, byte) in (0..length).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
                let mut bytes = vec![b'x'; length];
                bytes[at] = byte;
                let moves = matches!(byte, b'\r' | b'\n' | b'\t');
                let wanted = (byte.is_ascii_control() && !moves).then_some(at);
                assert_eq!(last_control(&bytes), wanted, "{byte} at {at} of {length}");
                bytes[0] = 0x1b;
                assert_eq!(last_control(&bytes), wanted.or(Some(0)));
            }
        }
    }

    /// Nothing that is printed, and no size, ends us.
    #[test]
    fn nothing_breaks_it() {
        let mut screen = Screen::new(TerminalSize { cols: 1, rows: 1 });
        let mut state = 7_u32;
        let mut noise = String::new();
        for round in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let pick = ALPHABET[(state >> 16) as usize % ALPHABET.len()];
            noise.push(char::from(pick));
            if round % 7 == 0 {
                noise.push('\u{4e2d}');
            }
            if round % 100 == 0 {
                screen.feed(std::mem::take(&mut noise).into());
                let size = |bits: u32| u16::try_from(bits % 40 + 1).unwrap_or(1);
                screen.resize(TerminalSize {
                    cols: size(state >> 8),
                    rows: size(state >> 20),
                });
                screen.snapshot();
            }
        }
    }
}
