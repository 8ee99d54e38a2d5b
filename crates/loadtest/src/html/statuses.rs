//! How status codes look in every plot: a colour, a pattern and a mark each, so that colour alone
//! never tells two of them apart.

use maud::{Markup, html};

/// Status codes that the purchase path answers with; the index is the look. All others share the
/// last one.
const KNOWN: [(u16, &str); 7] = [
    (202, "got an order"),
    (410, "sold out or over"),
    (409, "has an order already"),
    (429, "asked to come back"),
    (503, "busy, come back"),
    (401, "no valid token"),
    (404, "not found"),
];

/// The number of looks, one for each known code and one for all others.
const LOOKS: usize = KNOWN.len() + 1;

/// The look of a status: a number below [`LOOKS`] that class names end with.
pub(super) fn look(status: u16) -> usize {
    KNOWN.iter().position(|(known, _)| *known == status).unwrap_or(KNOWN.len())
}

/// The status with its meaning, such as `202 got an order`.
pub(super) fn label(status: u16) -> String {
    match KNOWN.iter().find(|(known, _)| *known == status) {
        Some((_, meaning)) => format!("{status} {meaning}"),
        None if status == 0 => "further codes".to_owned(),
        None => status.to_string(),
    }
}

/// The fillings that stacked areas use, once per page.
pub(super) fn patterns() -> Markup {
    // One tile of 8 by 8 per look: full, slanted, dotted, upright, level, crossed, slanted back,
    // squares.
    const TILES: [&str; LOOKS] = [
        "",
        "M-2 2L2-2M0 8L8 0M6 10L10 6",
        "M3 3h2v2h-2z",
        "M4 0V8",
        "M0 4H8",
        "M0 0L8 8M8 0L0 8",
        "M-2 6L2 10M0 0L8 8M6-2L10 2",
        "M1 1h6v6h-6z",
    ];
    html! {
        svg width="0" height="0" aria-hidden="true" class="defs" {
            defs {
                @for (look, tile) in TILES.iter().enumerate() {
                    pattern id={ "fill" (look) } width="8" height="8" patternUnits="userSpaceOnUse" {
                        rect width="8" height="8" class={ "f" (look) } {}
                        path d=(tile) class="hatch" {}
                    }
                }
            }
        }
    }
}

/// The legend of a plot: filled squares for areas, marks for lines.
pub(super) fn legend(statuses: &[u16], areas: bool) -> Markup {
    html! {
        ul class="legend" {
            @for status in statuses {
                @let look = look(*status);
                li {
                    svg class="key" viewBox="0 0 16 16" aria-hidden="true" {
                        @if areas {
                            @let fill = format!("url(#fill{look})");
                            rect x="1" y="1" width="14" height="14" fill=(fill) class="edge" {}
                        } @else {
                            path d=(marker(look, 8.0, 8.0)) class={ "f" (look) } {}
                        }
                    }
                    (label(*status))
                }
            }
        }
    }
}

/// A small shape around a point, different for every look.
pub(super) fn marker(look: usize, x: f64, y: f64) -> String {
    let at = format!("M{x:.1} {y:.1}");
    let rest = match look {
        0 => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
        1 => "m-4-4h8v8h-8z",
        2 => "m0-5l5 9h-10z",
        3 => "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
        4 => "m0 5l5-9h-10z",
        5 => "m-1.5-5h3v3.500h3.500v3h-3.500v3.500h-3v-3.500h-3.500v-3h3.500z",
        6 => "m-5-2h10v4h-10z",
        _ => "m-2-5h4v10h-4z",
    };
    at + rest
}
