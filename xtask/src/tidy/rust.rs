//! Reads Rust source just far enough to tell code from comments, literals and test code.
//!
//! Not a parser: it blanks what is not wanted with spaces, byte for byte, so that every offset and
//! line number stays that of the file. A syntax tree would be exact, and would cost a dependency
//! that compiles longer than all of xtask.

use std::ops::Range;

/// One Rust file, taken apart. All texts have the length and the lines of the file.
pub(super) struct Rust {
    /// Code alone: comments and the insides of literals are spaces.
    pub(super) code: String,
    /// Comments alone.
    pub(super) comments: String,
    /// Byte ranges of the items under `#[cfg(test)]`, attribute included.
    pub(super) tests: Vec<Range<usize>>,
}

impl Rust {
    /// Takes `text` apart.
    pub(super) fn read(text: &str) -> Rust {
        let kinds = classify(text.as_bytes());
        let code = keep(text, &kinds, Kind::Code);
        let tests = test_items(&code);
        Rust { comments: keep(text, &kinds, Kind::Comment), code, tests }
    }

    /// The code without the items under `#[cfg(test)]`.
    pub(super) fn production(&self) -> String {
        blank(&self.code, |at| self.in_tests(at))
    }

    /// Only the items under `#[cfg(test)]`.
    pub(super) fn test_code(&self) -> String {
        blank(&self.code, |at| !self.in_tests(at))
    }

    /// Whether the byte at `at` belongs to an item under `#[cfg(test)]`.
    pub(super) fn in_tests(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }
}

/// The line, counted from one, of the byte at `at`.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Whether `byte` can be part of an identifier.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Offsets at which `word` occurs in `code` with no identifier running on at either side.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let starts_word = word.as_bytes().first().copied().is_some_and(is_word);
    let ends_word = word.as_bytes().last().copied().is_some_and(is_word);
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let runs_before = starts_word && at > 0 && is_word(bytes[at - 1]);
        let runs_after = ends_word && bytes.get(at + word.len()).copied().is_some_and(is_word);
        !runs_before && !runs_after
    })
}

/// The offset just past the bracket that closes the one at `open`, or the end of the text.
pub(super) fn past_closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return offset + 1;
        }
    }
    code.len()
}

/// What a byte of the file belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Says for every byte what it belongs to.
fn classify(text: &[u8]) -> Vec<Kind> {
    let mut kinds = vec![Kind::Code; text.len()];
    let mut at = 0;
    while at < text.len() {
        let (kind, end) = match text[at] {
            b'/' if text.get(at + 1) == Some(&b'/') => (Kind::Comment, end_of_line(text, at)),
            b'/' if text.get(at + 1) == Some(&b'*') => (Kind::Comment, end_of_block(text, at)),
            b'"' => (Kind::Literal, end_of_string(text, at)),
            b'\'' => match end_of_char(text, at) {
                Some(end) => (Kind::Literal, end),
                None => (Kind::Code, at + 1),
            },
            byte if is_word(byte) => match end_of_raw_string(text, at) {
                Some(end) => (Kind::Literal, end),
                None => (Kind::Code, end_of_word(text, at)),
            },
            _ => (Kind::Code, at + 1),
        };
        let end = end.min(text.len());
        kinds[at..end].fill(kind);
        at = end;
    }
    kinds
}

fn end_of_line(text: &[u8], at: usize) -> usize {
    text[at..].iter().position(|&byte| byte == b'\n').map_or(text.len(), |length| at + length)
}

/// The end of a block comment; block comments nest.
fn end_of_block(text: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// The end of the character literal at `start`; `None` for a lifetime or a loop label.
fn end_of_char(text: &[u8], start: usize) -> Option<usize> {
    let first = *text.get(start + 1)?;
    if first == b'\\' {
        // The escaped character itself may be a quote, so the search starts behind it.
        let rest = text.get(start + 3..)?;
        return rest.iter().position(|&byte| byte == b'\'').map(|length| start + 3 + length + 1);
    }
    let width = match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    (text.get(start + 1 + width) == Some(&b'\'')).then_some(start + 2 + width)
}

/// The end of the raw string (`r"`, `r#"`, `br"`, `cr"`) at `start`; `None` where there is none.
fn end_of_raw_string(text: &[u8], start: usize) -> Option<usize> {
    let rest = &text[start..];
    let prefix = [&b"r"[..], b"br", b"cr"]
        .into_iter()
        .find(|prefix| rest.starts_with(prefix) && matches!(rest.get(prefix.len()), Some(b'"' | b'#')))?;
    let hashes = rest[prefix.len()..].iter().take_while(|&&byte| byte == b'#').count();
    let body = start + prefix.len() + hashes + 1;
    if text.get(body - 1) != Some(&b'"') {
        return None;
    }
    let closing = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let length = text.get(body..)?.windows(closing.len()).position(|window| window == closing);
    Some(length.map_or(text.len(), |length| body + length + closing.len()))
}

fn end_of_word(text: &[u8], start: usize) -> usize {
    text[start..].iter().position(|&byte| !is_word(byte)).map_or(text.len(), |length| start + length)
}

/// `text` with every byte that is not of `kind` blanked; newlines stay.
fn keep(text: &str, kinds: &[Kind], kind: Kind) -> String {
    blank(text, |at| kinds[at] != kind)
}

/// `text` with the bytes for which `unwanted` holds turned into spaces; newlines stay.
fn blank(text: &str, unwanted: impl Fn(usize) -> bool) -> String {
    let bytes = text.bytes().enumerate();
    let kept = bytes.map(|(at, byte)| if byte != b'\n' && unwanted(at) { b' ' } else { byte });
    // Kinds change at ASCII bytes only, so no character is ever cut in two.
    String::from_utf8_lossy(&kept.collect::<Vec<_>>()).into_owned()
}

/// The byte ranges of the items under `#[cfg(test)]`, in order; none lies within another.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let markers = ["#[cfg(test)]", "#[cfg(all(test"].into_iter();
    let mut starts: Vec<usize> =
        markers.flat_map(|marker| code.match_indices(marker).map(|(start, _)| start)).collect();
    starts.sort_unstable();

    let mut items: Vec<Range<usize>> = Vec::new();
    for start in starts {
        if items.last().is_none_or(|last| last.end <= start) {
            items.push(start..end_of_item(code, past_closing(code, start + 1)));
        }
    }
    items
}

/// The end of the item that starts at or after `at`: its `;`, the brace that closes its body, or,
/// for a field or a variant, its comma or the brace around it.
fn end_of_item(code: &str, mut at: usize) -> usize {
    let bytes = code.as_bytes();
    let mut angles = 0_usize;
    while at < bytes.len() {
        match bytes[at] {
            b';' => return at + 1,
            b',' if angles == 0 => return at + 1,
            b'{' => {
                let end = past_closing(code, at);
                // A `use` with a group, or a constant, has its `;` behind the brace.
                return end + usize::from(bytes.get(end) == Some(&b';'));
            }
            b'}' | b')' | b']' => return at,
            b'(' | b'[' => {
                at = past_closing(code, at);
                continue;
            }
            b'<' => angles += 1,
            // The arrow of a function closes no generics.
            b'>' if bytes[at - 1] != b'-' => angles = angles.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lengths_stay() {
        let cases = [
            ("let a = \"todo!()\"; b", "let a = ; b"),
            ("a /* x /* y */ z */ b", "a b"),
            ("a // fn x() {\nb", "a b"),
            (r##"r#"a " b"# c"##, "c"),
            (r#"br"\" c"#, "c"),
            (r"'{' c", "c"),
            (r"'\'' c", "c"),
            (r"'\u{7b}' c", "c"),
            ("'é' c", "c"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("r#type + r#fn", "r#type + r#fn"),
            (r#"b"\"{" c"#, "b c"),
            ("number\"x\"", "number"),
        ];
        for (text, expected) in cases {
            let code = Rust::read(text).code;
            assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{text}");
            assert_eq!(code.len(), text.len(), "{text}");
        }
    }

    #[test]
    fn comments_are_kept_apart() {
        let rust = Rust::read("a // note\n\"// no\"");
        assert_eq!(rust.comments, "  // note\n       ");
    }

    #[test]
    fn test_items_are_found_whole() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { '}' }\n}\nfn c() {}";
        let rust = Rust::read(text);
        let production = rust.production();
        assert!(production.contains("fn a") && production.contains("fn c"));
        assert!(!production.contains("fn b"));
        assert!(rust.test_code().contains("fn b") && !rust.test_code().contains("fn a"));
    }

    #[test]
    fn test_items_end_where_they_end() {
        let cases = [
            ("struct S { #[cfg(test)] a: u8, b: u8 }", "struct S {  b: u8 }"),
            ("struct S { #[cfg(test)] a: M<u8, u8> }", "struct S { }"),
            ("#[cfg(test)] fn f<A, B>(a: A, b: B) -> C<A> {} x", " x"),
            ("#[cfg(test)] use a::{b, c}; x", " x"),
            ("#[cfg(test)] mod t { #[cfg(test)] fn f() {} } x", " x"),
        ];
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (text, left) in cases {
            let rust = Rust::read(text);
            assert_eq!(squeezed(&rust.production()), squeezed(left), "{text}");
            assert_eq!(rust.tests.len(), 1, "{text}");
        }
    }

    #[test]
    fn words_are_whole_words() {
        assert_eq!(words("todo!() my_todo!() todo!()", "todo!").collect::<Vec<_>>(), [0, 19]);
    }
}
