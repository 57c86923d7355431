//! A measured figure, what is wanted of it, and the table of them.

use std::fmt;

/// `--check` lets a figure be this much worse than wanted: machines differ.
const SLACK: f64 = 0.7;

/// A count of instructions may be so much above its reference, which repeats to half a percent.
const TOLERANCE: f64 = 0.02;

/// What is wanted of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// This much or more.
    AtLeast(f64),
    /// This much or less.
    AtMost(f64),
    /// This much, or a little more: it is the same on every machine.
    Reference(f64),
    /// Nothing: it says where the others come from.
    Nothing,
}

/// One line of the results.
pub struct Figure {
    /// The bench and what of it.
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    pub wanted: Wanted,
    /// What was measured beside it, in the same run.
    pub compared: String,
}

impl Figure {
    pub fn new(name: &str, value: f64, unit: &'static str) -> Self {
        let compared = String::new();
        Self {
            name: name.to_owned(),
            value,
            unit,
            wanted: Wanted::Nothing,
            compared,
        }
    }

    pub fn at_least(mut self, wanted: f64) -> Self {
        self.wanted = Wanted::AtLeast(wanted);
        self
    }

    /// The same where something is wanted.
    pub fn maybe_at_least(self, wanted: Option<f64>) -> Self {
        match wanted {
            Some(wanted) => self.at_least(wanted),
            None => self,
        }
    }

    pub fn at_most(mut self, wanted: f64) -> Self {
        self.wanted = Wanted::AtMost(wanted);
        self
    }

    pub fn held_to(mut self, reference: f64) -> Self {
        self.wanted = Wanted::Reference(reference);
        self
    }

    pub fn beside(mut self, compared: impl Into<String>) -> Self {
        self.compared = compared.into();
        self
    }

    /// As good as wanted, or better.
    fn is_met(&self) -> bool {
        self.is_within(1.0)
    }

    /// Near enough for `--check`.
    pub fn passes(&self) -> bool {
        self.is_within(SLACK)
    }

    fn is_within(&self, slack: f64) -> bool {
        match self.wanted {
            Wanted::AtLeast(wanted) => self.value >= wanted * slack,
            Wanted::AtMost(wanted) => self.value <= wanted / slack,
            Wanted::Reference(reference) => self.value <= reference * (1.0 + TOLERANCE),
            Wanted::Nothing => true,
        }
    }

    fn cells(&self) -> [String; 5] {
        let value = |value: f64| {
            format!("{} {}", number(value), self.unit)
                .trim_end()
                .to_owned()
        };
        let wanted = match self.wanted {
            Wanted::AtLeast(wanted) => format!("≥ {}", value(wanted)),
            Wanted::AtMost(wanted) => format!("≤ {}", value(wanted)),
            Wanted::Reference(reference) => {
                format!("≤ {} + {:.0} %", number(reference), TOLERANCE * 100.0)
            }
            Wanted::Nothing => String::new(),
        };
        let ok = match self.wanted {
            Wanted::Nothing => "",
            _ if self.is_met() => "yes",
            _ if self.passes() => "near",
            _ => "no",
        };
        [
            self.name.clone(),
            value(self.value),
            wanted,
            ok.to_owned(),
            self.compared.clone(),
        ]
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, value, wanted, _, compared] = self.cells();
        write!(f, "{name}: {value}, wanted {wanted} ({compared})")
    }
}

/// All figures as a Markdown table with aligned columns.
pub fn table(figures: &[Figure]) -> String {
    let mut rows = vec![["name", "figure", "wanted", "ok", "compared with"].map(str::to_owned)];
    rows.extend(figures.iter().map(Figure::cells));
    let widths: [usize; 5] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| width(&row[column]))
            .max()
            .unwrap_or(0)
    });
    rows.insert(1, widths.map(|width| "-".repeat(width.max(3))));
    let mut text = String::new();
    for row in rows {
        for (cell, column) in row.iter().zip(widths) {
            let padding = " ".repeat(column.max(3) - width(cell));
            text.push_str(&format!("| {cell}{padding} "));
        }
        text.push_str("|\n");
    }
    text
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Three digits that mean something, with thousands apart.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 || v == 0.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let mut parted = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) && digit != '-' {
            parted.push(',');
        }
        parted.push(digit);
    }
    if rest.is_empty() {
        parted
    } else {
        format!("{parted}.{rest}")
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// The lower quartile: CPU of one contestant, on its own. Neighbours on the machine only ever
/// add to it, so that the quieter rounds are nearer to what it is.
pub fn quiet(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 4).copied().unwrap_or(f64::NAN)
}

/// The ratio of the medians of two contestants.
pub fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours) / median(theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_goes_both_ways() {
        let figure = |value: f64| Figure::new("f", value, "µs");
        assert!(figure(7.0).at_least(10.0).passes());
        assert!(!figure(6.9).at_least(10.0).passes());
        assert!(figure(10.0).at_most(7.0).passes());
        assert!(!figure(10.1).at_most(7.0).passes());
        assert!(!figure(f64::NAN).at_most(7.0).passes());
        assert!(!figure(9.9).at_least(10.0).is_met());
    }

    #[test]
    fn a_reference_has_no_slack() {
        let figure = |value: f64| Figure::new("f", value, "").held_to(10_000.0);
        assert!(figure(10_200.0).is_met());
        assert!(!figure(10_201.0).passes());
        assert!(figure(1.0).passes());
        assert_eq!(figure(10_201.0).cells()[2..4], ["≤ 10,000 + 2 %", "no"]);
    }

    #[test]
    fn numbers_and_medians() {
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(number(0.0312), "0.0312");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quiet(&[4.0, 1.0, 2.0, 3.0]), 2.0);
        assert_eq!(quiet(&[5.0]), 5.0);
    }
}
