//! Runs as a person sees them while they go on: a few lines at a terminal, drawn again in place;
//! a line now and then where there is none. Nothing of the terminal's settings is changed, so
//! there is nothing to put back, however we end.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write as _};

use super::live::Seen;

/// Between two drawings.
pub const DRAW_EVERY_MS: u64 = 100;
/// Between two lines where there is no terminal.
const SAY_EVERY_US: u64 = 10_000_000;
/// A rate is that of so many drawings: a second.
const RATE_OF: usize = 10;
/// Types of events that are shown, the most frequent ones.
const KINDS_SHOWN: usize = 6;
/// A longer line is cut; the terminal cuts at its own edge.
const LINE_CHARS_MAX: usize = 400;

/// Where it is shown.
pub struct Screen {
    way: Way,
    began_us: u64,
    /// Lines that stand there now.
    drawn: usize,
    /// When how many bytes of artifacts were there.
    bytes: VecDeque<(u64, u64)>,
    /// When a line was said, and of how many events and bytes.
    said: (u64, u64, u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Drawn,
    Said,
    Not,
}

/// How many runs there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub ended: usize,
    pub running: usize,
    pub waiting: usize,
}

impl Screen {
    pub fn new(quiet: bool, now_us: u64) -> Self {
        let way = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Way::Not,
            (false, true) => Way::Drawn,
            (false, false) => Way::Said,
        };
        Self {
            way,
            began_us: now_us,
            drawn: 0,
            bytes: VecDeque::new(),
            said: (now_us, 0, 0),
        }
    }

    /// Shows how far it is.
    pub fn show(&mut self, now_us: u64, title: &str, seen: &Seen, counts: Counts) {
        match self.way {
            Way::Not => {}
            Way::Drawn => {
                let lines = self.lines(now_us, title, seen, counts);
                self.draw(&lines);
            }
            Way::Said => self.say(now_us, seen, counts),
        }
    }

    /// Takes away what was drawn.
    pub fn clear(&mut self) {
        if self.drawn > 0 {
            let up = self.drawn;
            self.drawn = 0;
            put(&format!("\x1b[{up}A\r\x1b[J"));
        }
    }

    fn lines(&mut self, now_us: u64, title: &str, seen: &Seen, counts: Counts) -> Vec<String> {
        if self.bytes.len() > RATE_OF {
            self.bytes.pop_front();
        }
        self.bytes.push_back((now_us, seen.artifact_bytes));
        let took = now_us.saturating_sub(self.began_us);
        let mut lines = vec![
            format!("{title}  {}", seconds(took)),
            format!("events     {}", events(seen)),
            format!(
                "artifacts  {}  {}  {}/s",
                seen.artifacts,
                size(seen.artifact_bytes),
                size(self.rate())
            ),
        ];
        if counts.ended + counts.running + counts.waiting > 1 {
            lines.push(format!(
                "runs       {} running, {} waiting, {} ended",
                counts.running, counts.waiting, counts.ended
            ));
        }
        if let Some(log) = seen.last_log() {
            lines.push(format!("log        {}", plain(&log)));
        }
        lines
    }

    /// Bytes in a second.
    fn rate(&self) -> u64 {
        let (Some(first), Some(last)) = (self.bytes.front(), self.bytes.back()) else {
            return 0;
        };
        let took_us = last.0.saturating_sub(first.0).max(1);
        let bytes = u128::from(last.1.saturating_sub(first.1));
        u64::try_from(bytes * 1_000_000 / u128::from(took_us)).unwrap_or(u64::MAX)
    }

    /// One write: the terminal cuts lines at its edge meanwhile, and so never has more of them.
    fn draw(&mut self, lines: &[String]) {
        let mut text = String::from("\x1b[?7l");
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A\r", self.drawn));
        }
        for line in lines {
            text.extend(line.chars().take(LINE_CHARS_MAX));
            text.push_str("\x1b[K\r\n");
        }
        text.push_str("\x1b[J\x1b[?7h");
        self.drawn = lines.len();
        put(&text);
    }

    /// Says a line if there is something new to say.
    fn say(&mut self, now_us: u64, seen: &Seen, counts: Counts) {
        let (at, events_then, bytes_then) = self.said;
        let is_new = (seen.events, seen.artifact_bytes) != (events_then, bytes_then);
        if now_us.saturating_sub(at) < SAY_EVERY_US || !is_new {
            return;
        }
        self.said = (now_us, seen.events, seen.artifact_bytes);
        let mut line = format!(
            "{}: events {}; artifacts {}, {}",
            seconds(now_us.saturating_sub(self.began_us)),
            events(seen),
            seen.artifacts,
            size(seen.artifact_bytes)
        );
        if counts.ended + counts.waiting > 0 {
            line.push_str(&format!("; {} runs ended", counts.ended));
        }
        put(&format!("{line}\n"));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear();
    }
}

fn put(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

fn events(seen: &Seen) -> String {
    let mut kinds: Vec<(&String, &u64)> = seen.kinds.iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut text = seen.events.to_string();
    for (kind, count) in kinds.iter().take(KINDS_SHOWN) {
        text.push_str(&format!("  {} {count}", plain(kind)));
    }
    text
}

/// A script's words: nothing in them moves the cursor.
pub fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(LINE_CHARS_MAX).map(shown).collect()
}

pub fn seconds(micros: u64) -> String {
    let tenths = micros / 100_000;
    match tenths / 10 {
        0 => format!("{} ms", micros / 1000),
        whole @ 1..60 => format!("{whole}.{} s", tenths % 10),
        whole @ 60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        whole => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (bytes / 100, 0);
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        tenths /= 1000;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1000), "1.0 kB");
        assert_eq!(size(999_999), "999.9 kB");
        assert_eq!(size(8 << 30), "8.5 GB");
        assert_eq!(seconds(69_900), "69 ms");
        assert_eq!(seconds(1_250_000), "1.2 s");
        assert_eq!(seconds(125_000_000), "2 min 05 s");
        assert_eq!(seconds(7_500_000_000), "2 h 05 min");
        assert_eq!(plain("a\x1b[2Jb\nc"), "a [2Jb c");
    }
}
