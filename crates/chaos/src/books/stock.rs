//! The stock's keys, read from Redis: `<prefix>{s<sale>.<bucket>}:<epoch>:<key>`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis::aio::MultiplexedConnection;

use super::holds::{entry, holds_of, order_of};
use super::{BooksError, Bucket, Hold, Phase};
use crate::{ItemId, SaleId};

/// The keys of a bucket, in the order in which they are read.
const KEYS: [&str; 7] = ["cfg", "stk", "alc", "buy", "out", "gone", "ops"];

/// How many keys one step of the listing looks at.
const LISTED_AT_ONCE: usize = 1_000;

/// Names one bucket of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    sale: SaleId,
    bucket: u64,
    epoch: u64,
}

type Hash = HashMap<String, String>;
type Raw = (Hash, Hash, Hash, Hash, Vec<(String, f64)>, Vec<String>, Hash);

/// Every bucket of every epoch, each in one state.
pub(super) async fn read(url: &str, prefix: &str) -> Result<Vec<Bucket>, BooksError> {
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut buckets = Vec::new();
    for name in names(&mut redis, prefix).await? {
        let base = format!("{prefix}{{s{}.{}}}:{}:", name.sale, name.bucket, name.epoch);
        let [cfg, stk, alc, buy, out, gone, ops] = KEYS.map(|key| format!("{base}{key}"));
        // One transaction, since the script law holds between steps, not between reads.
        let raw: Raw = redis::pipe()
            .atomic()
            .hgetall(cfg)
            .hgetall(stk)
            .hgetall(alc)
            .hgetall(buy)
            .zrange_withscores(out, 0, -1)
            .smembers(gone)
            .hgetall(ops)
            .query_async(&mut redis)
            .await?;
        buckets.push(decode(name, &base, raw)?);
    }
    Ok(buckets)
}

/// The buckets of which any key exists.
async fn names(redis: &mut MultiplexedConnection, prefix: &str) -> Result<BTreeSet<Name>, BooksError> {
    let pattern = format!("{}{{s*", escaped(prefix));
    let (mut names, mut cursor) = (BTreeSet::new(), 0_u64);
    loop {
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(&pattern)
            .arg("COUNT")
            .arg(LISTED_AT_ONCE)
            .query_async(redis)
            .await?;
        names.extend(keys.iter().filter_map(|key| name_of(key.strip_prefix(prefix)?)));
        if next == 0 {
            return Ok(names);
        }
        cursor = next;
    }
}

/// Redis takes a pattern where we mean a text.
fn escaped(prefix: &str) -> String {
    prefix.chars().fold(String::new(), |mut text, letter| {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            text.push('\\');
        }
        text.push(letter);
        text
    })
}

/// The bucket that a key without its prefix belongs to, such as `{s1.0}:3:stk`.
fn name_of(key: &str) -> Option<Name> {
    let (tag, rest) = key.strip_prefix("{s")?.split_once("}:")?;
    let (sale, bucket) = tag.split_once('.')?;
    let (epoch, key) = rest.split_once(':')?;
    KEYS.contains(&key).then_some(())?;
    Some(Name { sale: SaleId(sale.parse().ok()?), bucket: bucket.parse().ok()?, epoch: epoch.parse().ok()? })
}

fn decode(name: Name, base: &str, raw: Raw) -> Result<Bucket, BooksError> {
    let (cfg, stk, alc, buy, out, gone, ops) = raw;
    let marked = [
        cfg.contains_key(""),
        stk.contains_key(""),
        alc.contains_key(""),
        buy.contains_key(""),
        out.iter().any(|(member, _)| member.is_empty()),
        gone.iter().any(String::is_empty),
        ops.contains_key(""),
    ];
    let unmarked = KEYS.iter().zip(marked).filter(|(_, marked)| !marked).map(|(key, _)| *key).collect();
    let strange =
        |key: &str, value: &str| BooksError::Packed { key: format!("{base}{key}"), value: value.to_owned() };
    let number = |field: &str| match cfg.get(field) {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| strange("cfg", text)),
    };

    let mut holds: Vec<Hold> = Vec::new();
    for (user, lines) in buy.iter().filter(|(user, _)| !user.is_empty()) {
        holds.extend(holds_of(user, lines).ok_or_else(|| strange("buy", lines))?);
    }
    holds.sort_by_key(|hold| hold.order);
    let entries = out.iter().filter(|(member, _)| !member.is_empty());
    let outbox = entries
        .map(|(member, score)| entry(member, *score).ok_or_else(|| strange("out", member)))
        .collect::<Result<_, _>>()?;
    let ids = gone.iter().filter(|id| !id.is_empty());
    let gone = ids.map(|id| order_of(id).ok_or_else(|| strange("gone", id))).collect::<Result<_, _>>()?;
    Ok(Bucket {
        sale: name.sale,
        bucket: name.bucket,
        epoch: name.epoch,
        phase: cfg.get("phase").and_then(|word| phase(word)),
        loaded: cfg.contains_key("limit"),
        limit: number("limit")?,
        seq: number("seq")?,
        counted_holds: number("holds")?,
        free: units(&stk).map_err(|text| strange("stk", &text))?,
        allocated: units(&alc).map_err(|text| strange("alc", &text))?,
        holds,
        outbox,
        gone,
        operations: ops.into_iter().filter(|(operation, _)| !operation.is_empty()).collect(),
        unmarked,
    })
}

fn phase(word: &str) -> Option<Phase> {
    Some(match word {
        "loading" => Phase::Loading,
        "open" => Phase::Open,
        "fenced" => Phase::Fenced,
        _ => return None,
    })
}

/// Units per item; the text that is none otherwise.
fn units(hash: &Hash) -> Result<BTreeMap<ItemId, i64>, String> {
    let pairs = hash.iter().filter(|(item, _)| !item.is_empty());
    pairs
        .map(|(item, units)| match (item.parse(), units.parse()) {
            (Ok(item), Ok(units)) => Ok((ItemId(item), units)),
            _ => Err(format!("{item} {units}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str = "0198c5a47b1e7c3a9d2f3b8f6a1c2d4e";

    fn hash(pairs: &[(&str, &str)]) -> Hash {
        pairs.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
    }

    fn raw() -> Raw {
        let hold = format!("{ORDER} 7 2 41 3 1795766400123 - -");
        (
            hash(&[("", "1"), ("phase", "open"), ("limit", "2"), ("seq", "41"), ("holds", "1")]),
            hash(&[("", "1"), ("7", "8")]),
            hash(&[("", "1"), ("7", "10")]),
            hash(&[("", "1"), ("alice", &hold)]),
            vec![(String::new(), -1.0), (format!("{ORDER}alice"), 41.0)],
            vec![String::new()],
            hash(&[("", "1"), ("op", "LEFT 3")]),
        )
    }

    const NAME: Name = Name { sale: SaleId(1), bucket: 0, epoch: 3 };

    #[test]
    fn a_buckets_keys_are_understood() {
        let bucket = decode(NAME, "p:", raw()).unwrap();
        assert_eq!((bucket.phase, bucket.loaded, bucket.seq), (Some(Phase::Open), true, 41));
        assert_eq!((bucket.free[&ItemId(7)], bucket.allocated[&ItemId(7)]), (8, 10));
        assert_eq!((bucket.holds.len(), bucket.counted_holds, bucket.outbox[0].seq), (1, 1, 41));
        assert_eq!(bucket.operations["op"], "LEFT 3");
        assert!(bucket.unmarked.is_empty() && bucket.gone.is_empty());
    }

    #[test]
    fn a_key_without_its_mark_is_named() {
        let mut raw = raw();
        raw.1.remove("");
        raw.5.clear();
        assert_eq!(decode(NAME, "p:", raw).unwrap().unmarked, ["stk", "gone"]);
    }

    #[test]
    fn a_strange_value_is_told_with_its_key() {
        let mut raw = raw();
        raw.3.insert("bob".to_owned(), "rubbish".to_owned());
        let error = decode(NAME, "p:{s1.0}:3:", raw).unwrap_err().to_string();
        assert!(error.contains("p:{s1.0}:3:buy") && error.contains("rubbish"), "{error}");
    }

    #[test]
    fn buckets_are_known_by_their_keys() {
        assert_eq!(name_of("{s1.0}:3:stk"), Some(NAME));
        for other in ["{s1.0}:3:other", "{s1}:3:stk", "s1.0:3:stk", "{sx.0}:3:stk", "{s1.0}:stk"] {
            assert_eq!(name_of(other), None, "{other}");
        }
        assert_eq!(escaped("a*b:"), "a\\*b:");
    }
}
