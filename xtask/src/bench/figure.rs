//! What a measurement found: ours and the yardstick, round by round.

use serde_json::{Value, json};

/// What a figure must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// Ours is at least so many times the yardstick; more is better.
    Times(f64),
    /// The yardstick is at least so many times ours: ours is a cost.
    Thrift(f64),
    /// Ours is at most so many times the yardstick; less is better.
    AtMostTimes(f64),
    /// Ours is at most this, in its own unit; the yardstick only stands beside it.
    AtMost(f64),
    /// Nothing is to be reached: the figure is kept to be compared with later ones.
    Kept,
}

/// One figure of one row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The row's number in the table of goals, or its name.
    pub(crate) row: &'static str,
    /// What was measured.
    pub(crate) what: &'static str,
    /// The unit of ours and of the yardstick.
    pub(crate) unit: &'static str,
    /// What ours is held against.
    pub(crate) against: &'static str,
    /// What is to be reached.
    pub(crate) goal: Goal,
    /// Ours and the yardstick of every round.
    pub(crate) rounds: Vec<(f64, Option<f64>)>,
    /// Whether the books balanced in every round.
    pub(crate) books: Books,
    /// What else was seen, such as how busy the server was.
    pub(crate) notes: Vec<String>,
}

/// Whether what was sold was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Books {
    /// Nothing was sold while this was measured.
    Unasked,
    /// Oversold 0, lost 0, and the audit found nothing.
    Balanced,
    /// Something was wrong: the speed counts for nothing.
    Wrong,
}

impl Goal {
    fn words(self, unit: &str) -> String {
        match self {
            Self::Times(goal) | Self::Thrift(goal) => format!("≥ {goal} ×"),
            Self::AtMostTimes(goal) => format!("≤ {goal} ×"),
            Self::AtMost(goal) => format!("≤ {goal} {unit}"),
            Self::Kept => "kept".to_owned(),
        }
    }

    /// Ours against the yardstick, the way round in which the goal is said.
    fn ratio(self, ours: f64, yardstick: f64) -> f64 {
        if let Self::Thrift(_) = self { yardstick / ours } else { ours / yardstick }
    }

    fn is_met(self, ours: f64, ratio: Option<f64>) -> bool {
        match self {
            Self::Times(goal) | Self::Thrift(goal) => ratio.is_some_and(|ratio| ratio >= goal),
            Self::AtMostTimes(goal) => ratio.is_some_and(|ratio| ratio <= goal),
            Self::AtMost(goal) => ours <= goal,
            Self::Kept => true,
        }
    }
}

impl Figure {
    fn ours(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.0).collect())
    }

    fn yardstick(&self) -> Option<f64> {
        let all: Vec<f64> = self.rounds.iter().filter_map(|round| round.1).collect();
        (!all.is_empty()).then(|| median(all))
    }

    /// The ratio of every round.
    fn ratios(&self) -> Vec<f64> {
        self.rounds
            .iter()
            .filter_map(|(ours, yardstick)| Some(self.goal.ratio(*ours, (*yardstick)?)))
            .collect()
    }

    /// The figure for programs.
    pub(crate) fn json(&self, commit: &str, date: &str) -> Value {
        let ratios = self.ratios();
        let ratio = (!ratios.is_empty()).then(|| median(ratios.clone()));
        let spread = match self.goal {
            Goal::AtMost(_) | Goal::Kept => edges(self.rounds.iter().map(|round| round.0), self.unit),
            Goal::Times(_) | Goal::Thrift(_) | Goal::AtMostTimes(_) => edges(ratios.into_iter(), "×"),
        };
        let right = self.books != Books::Wrong;
        json!({
            "row": self.row,
            "what": self.what,
            "ours": amount(self.ours(), self.unit),
            "yardstick": self.yardstick().map(|it| format!("{} ({})", amount(it, self.unit), self.against)),
            "ratio": ratio.map(|ratio| (ratio * 1_000.0).round() / 1_000.0),
            "goal": self.goal.words(self.unit),
            "met": right && self.goal.is_met(self.ours(), ratio),
            "spread": spread,
            "books": match self.books {
                Books::Unasked => Value::Null,
                Books::Balanced => "oversold 0, lost 0, audit ok".into(),
                Books::Wrong => "WRONG".into(),
            },
            "rounds": self.rounds,
            "notes": self.notes,
            "commit": commit,
            "date": date,
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => (values[length / 2 - 1] + values[length / 2]) / 2.0,
    }
}

/// The least and the greatest.
fn edges(values: impl Iterator<Item = f64>, unit: &str) -> String {
    let (least, greatest) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, greatest), it| (least.min(it), greatest.max(it)));
    format!("{}–{} {unit}", digits(least), digits(greatest))
}

fn amount(value: f64, unit: &str) -> String {
    format!("{} {unit}", digits(value))
}

/// Three digits that count, with commas between thousands.
fn digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude < 10.0 {
        return format!("{value:.2}");
    }
    if magnitude < 100.0 {
        return format!("{value:.1}");
    }
    let whole = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) && digit != '-' {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(goal: Goal, rounds: &[(f64, Option<f64>)]) -> Figure {
        Figure {
            row: "1",
            what: "answers",
            unit: "µs",
            against: "nginx",
            goal,
            rounds: rounds.to_vec(),
            books: Books::Unasked,
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_ratios() {
        let rounds = [(2.0, Some(1.0)), (4.0, Some(1.0)), (3.0, Some(3.0))];
        let times = figure(Goal::Times(2.0), &rounds).json("c", "d");
        assert_eq!((&times["ratio"], &times["met"]), (&json!(2.0), &json!(true)));
        assert_eq!(times["spread"], "1.00–4.00 ×");
        let thrift = figure(Goal::Thrift(0.85), &rounds).json("c", "d");
        assert_eq!((&thrift["ratio"], &thrift["met"]), (&json!(0.5), &json!(false)));
    }

    #[test]
    fn a_bound_in_its_own_unit_needs_no_yardstick() {
        let alone = figure(Goal::AtMost(1.0), &[(0.5, None), (0.7, None)]).json("c", "d");
        assert_eq!((&alone["yardstick"], &alone["met"]), (&Value::Null, &json!(true)));
        assert_eq!(alone["ours"], "0.60 µs");
    }

    #[test]
    fn wrong_books_miss_every_goal() {
        let mut fast = figure(Goal::AtMost(1.0), &[(0.5, None)]);
        fast.books = Books::Wrong;
        assert_eq!(fast.json("c", "d")["met"], json!(false));
    }

    #[test]
    fn numbers_are_readable() {
        for (value, expected) in
            [(0.123, "0.12"), (12.34, "12.3"), (999.6, "1,000"), (12_345.0, "12,345"), (1e6, "1,000,000")]
        {
            assert_eq!(digits(value), expected);
        }
    }
}
