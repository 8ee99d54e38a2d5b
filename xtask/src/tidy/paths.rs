//! Finds the paths (`a::b::c`) that Rust code mentions, with `use` groups written out.

use super::rust::is_word;

/// One path as the code mentions it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mention {
    /// Byte offset of its last segment.
    pub(super) at: usize,
    /// Its segments; `self` and `super` at the front are resolved to `crate` and the module.
    pub(super) segments: Vec<String>,
}

impl Mention {
    /// Whether the path begins with the segments of `prefix` (`"tokio::spawn"`).
    pub(super) fn starts_with(&self, prefix: &str) -> bool {
        let mut segments = self.segments.iter();
        prefix.split("::").all(|wanted| segments.next().is_some_and(|segment| segment == wanted))
    }

    /// Whether the path ends with the segments of `suffix`.
    pub(super) fn ends_with(&self, suffix: &str) -> bool {
        let mut segments = self.segments.iter().rev();
        suffix.rsplit("::").all(|wanted| segments.next().is_some_and(|segment| segment == wanted))
    }

    /// The module right under the crate's root that the path leads into, if it starts at the root.
    pub(super) fn own_module(&self) -> Option<&str> {
        match self.segments.as_slice() {
            [root, module, ..] if root == "crate" => Some(module),
            _ => None,
        }
    }

    /// The path as text.
    pub(super) fn text(&self) -> String {
        self.segments.join("::")
    }
}

/// The path of the module that the file at `path` holds: `["stock", "redis"]` for
/// `crates/engine/src/stock/redis.rs`, empty for a crate's root.
pub(super) fn module_of(path: &str) -> Vec<String> {
    let inside = path.split_once("src/").map_or(path, |(_, inside)| inside);
    let inside = inside.trim_end_matches(".rs");
    let mut module: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// The paths of two and more segments, and the lone names after `use`, that `code` mentions.
/// `module` is the module the code stands in.
pub(super) fn mentions(code: &str, module: &[String]) -> Vec<Mention> {
    let mut reader = Reader { code: code.as_bytes(), at: 0, found: Vec::new() };
    let mut after_use = false;
    while reader.at < reader.code.len() {
        if !is_word(reader.code[reader.at]) {
            // A lifetime's name is no path; `::` before a name means it was read as part of one.
            reader.at += if reader.code[reader.at] == b'\'' { 2 } else { 1 };
            continue;
        }
        let start = reader.at;
        reader.tree(Vec::new());
        let word = &code[start..reader.at];
        let lone = reader.found.last().is_some_and(|last| last.at == start);
        if lone && !after_use {
            reader.found.pop();
        }
        after_use = word == "use";
    }
    for mention in &mut reader.found {
        resolve(&mut mention.segments, module);
    }
    reader.found
}

/// Turns a leading `self` or `super…` into `crate` and the module it means.
fn resolve(segments: &mut Vec<String>, module: &[String]) {
    let ups = segments.iter().take_while(|segment| *segment == "super").count();
    let skip = match segments.first().map(String::as_str) {
        Some("self") => 1,
        Some("super") => ups,
        _ => return,
    };
    let base = &module[..module.len().saturating_sub(ups)];
    let root = std::iter::once("crate".to_owned());
    *segments = root.chain(base.iter().cloned()).chain(segments.drain(skip..)).collect();
}

/// Walks over the code and collects paths.
struct Reader<'a> {
    code: &'a [u8],
    at: usize,
    found: Vec<Mention>,
}

impl Reader<'_> {
    /// Reads the path, or the `use` tree, that begins at an identifier; `prefix` stands before it.
    fn tree(&mut self, mut prefix: Vec<String>) {
        loop {
            let start = self.at;
            while self.at < self.code.len() && is_word(self.code[self.at]) {
                self.at += 1;
            }
            prefix.push(String::from_utf8_lossy(&self.code[start..self.at]).into_owned());
            if !self.past_separator() {
                self.found.push(Mention { at: start, segments: prefix });
                return;
            }
            match self.code.get(self.at) {
                Some(byte) if is_word(*byte) => {}
                Some(b'{') => return self.group(&prefix),
                Some(b'*') => {
                    prefix.push("*".to_owned());
                    self.found.push(Mention { at: self.at, segments: prefix });
                    return;
                }
                // A turbofish: the path so far is the mention.
                _ => {
                    self.found.push(Mention { at: start, segments: prefix });
                    return;
                }
            }
        }
    }

    /// Reads `{a, b::c}` after `prefix::`.
    fn group(&mut self, prefix: &[String]) {
        self.at += 1;
        while let Some(&byte) = self.code.get(self.at) {
            match byte {
                b'}' => {
                    self.at += 1;
                    return;
                }
                _ if is_word(byte) => {
                    self.tree(prefix.to_vec());
                    self.past_rename();
                }
                _ => self.at += 1,
            }
        }
    }

    /// Skips the ` as name` behind an entry of a group.
    fn past_rename(&mut self) {
        if self.code[self.at..].starts_with(b" as ") {
            while self.code.get(self.at).is_some_and(|byte| !matches!(byte, b',' | b'}')) {
                self.at += 1;
            }
        }
    }

    /// Moves behind `::`; false, and no move, where there is none.
    fn past_separator(&mut self) -> bool {
        let found = self.code[self.at..].starts_with(b"::");
        self.at += if found { 2 } else { 0 };
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|&name| name.to_owned()).collect();
        mentions(code, &module).iter().map(Mention::text).collect()
    }

    #[test]
    fn use_groups_are_written_out() {
        assert_eq!(
            texts("use crate::{order::Id, queue::{Queue, Reader as R}, stock};", &[]),
            ["crate::order::Id", "crate::queue::Queue", "crate::queue::Reader", "crate::stock"]
        );
        assert_eq!(texts("use {a::b, c::*};", &[]), ["a::b", "c::*"]);
    }

    #[test]
    fn paths_inside_code_are_found() {
        let code = "let x: Vec<redis::Value> = ::tokio::spawn(f::<u8>(b)); match y { Z => q }";
        assert_eq!(texts(code, &[]), ["redis::Value", "tokio::spawn"]);
    }

    #[test]
    fn lone_names_count_after_use_only() {
        assert_eq!(texts("use redis; redis", &[]), ["redis"]);
    }

    #[test]
    fn self_and_super_are_resolved() {
        assert_eq!(texts("use super::queue::Queue;", &["stock"]), ["crate::queue::Queue"]);
        assert_eq!(texts("super::super::queue::x()", &["stock", "redis"]), ["crate::queue::x"]);
        assert_eq!(texts("use self::batch::Batch;", &["stock"]), ["crate::stock::batch::Batch"]);
    }

    #[test]
    fn a_file_is_its_module() {
        assert_eq!(module_of("crates/engine/src/stock/mod.rs"), ["stock"]);
        assert_eq!(module_of("crates/engine/src/stock/redis.rs"), ["stock", "redis"]);
        assert!(module_of("crates/engine/src/lib.rs").is_empty());
    }
}
