//! The parsers: however bytes are cut into chunks, the same frames come out; and no bytes make them panic.

use bytes::{BufMut as _, Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use super::dialect::{Dialect, Protocol, ReplyForm, Said, Trouble};

const PROTOCOLS: [Protocol; 3] = [Protocol::Resp, Protocol::Postgres, Protocol::Kafka];

/// What the proxy makes of a client's bytes that come in chunks of these sizes, over and over; and what is
/// left when it cannot go on, or no more comes.
fn requests(protocol: Protocol, bytes: &[u8], chunks: &[usize]) -> (Vec<(Bytes, Option<Said>)>, Bytes) {
    let mut dialect = Dialect::new(protocol);
    let mut found = Vec::new();
    let rest = fed(bytes, chunks, |input| {
        while let Some(piece) = dialect.next_from_client(input)? {
            found.push((piece.bytes, piece.request.map(|it| it.said)));
        }
        Ok(())
    });
    (found, rest)
}

/// The same of a server's bytes, while something is asked.
fn replies(protocol: Protocol, bytes: &[u8], chunks: &[usize]) -> (Vec<Bytes>, Bytes) {
    let mut dialect = Dialect::new(protocol);
    let mut found = Vec::new();
    let rest = fed(bytes, chunks, |input| {
        while let Some(piece) = dialect.next_from_server(input, Some(ReplyForm::OneFrame))? {
            found.push(piece.bytes);
        }
        Ok(())
    });
    (found, rest)
}

fn fed(
    bytes: &[u8],
    chunks: &[usize],
    mut divide: impl FnMut(&mut BytesMut) -> Result<(), Trouble>,
) -> Bytes {
    let mut input = BytesMut::new();
    let (mut rest, mut understood) = (bytes, true);
    for &size in chunks.iter().cycle() {
        let (chunk, later) = rest.split_at(size.min(rest.len()));
        input.extend_from_slice(chunk);
        rest = later;
        understood = understood && divide(&mut input).is_ok();
        if rest.is_empty() {
            break;
        }
    }
    input.freeze()
}

fn chunks() -> impl Strategy<Value = Vec<usize>> {
    vec(1..40_usize, 1..20)
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..30), Just(b"\r\n".to_vec()), Just(b"GET".to_vec())]
}

fn command(words: &[Vec<u8>]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        text.extend(format!("${}\r\n", word.len()).bytes());
        text.extend(word);
        text.extend(b"\r\n");
    }
    text
}

/// Any value of RESP3.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        "[+-][a-z ]{0,12}\r\n".prop_map(String::into_bytes),
        any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
        word().prop_map(|word| [format!("${}\r\n", word.len()).as_bytes(), &word, b"\r\n"].concat()),
        Just(b"$-1\r\n".to_vec()),
        Just(b"_\r\n".to_vec()),
        Just(b"#t\r\n".to_vec()),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            (prop_oneof![Just('*'), Just('~'), Just('>')], vec(inner.clone(), 0..6)).prop_map(
                |(kind, values)| {
                    [format!("{kind}{}\r\n", values.len()).into_bytes(), values.concat()].concat()
                }
            ),
            vec((inner.clone(), inner), 0..4).prop_map(|pairs| {
                let mut text = format!("%{}\r\n", pairs.len()).into_bytes();
                pairs.iter().for_each(|(key, value)| text.extend([&key[..], value].concat()));
                text
            }),
        ]
    })
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.put_i32(i32::try_from(body.len() + 4).unwrap());
    bytes.extend(body);
    bytes
}

/// A run of PostgreSQL messages, and the SQL that it is about.
fn run() -> impl Strategy<Value = (Vec<u8>, Vec<String>)> {
    let sql = || "[a-z ]{0,20}";
    prop_oneof![
        sql().prop_map(|sql| (message(b'Q', format!("{sql}\0").as_bytes()), vec![sql])),
        (sql(), "[a-z]{0,3}").prop_map(|(sql, name)| {
            let parse = message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes());
            let bind = message(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
            let rest = [message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
            ([parse, bind, rest].concat(), vec![sql.clone(), sql])
        }),
    ]
}

fn startup() -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 9];
    bytes.put_i32(3 << 16);
    bytes.push(0);
    bytes
}

fn kafka_frame(key: i16, number: i32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_i32(i32::try_from(rest.len() + 10).unwrap());
    bytes.put_i16(key);
    bytes.put_i16(1);
    bytes.put_i32(number);
    bytes.put_i16(-1);
    bytes.extend(rest);
    bytes
}

fn bytes_of<T: AsRef<[u8]>>(frames: &[T]) -> Vec<&[u8]> {
    frames.iter().map(AsRef::as_ref).collect()
}

proptest! {
    #[test]
    fn redis_commands_come_out_whole_and_in_their_words(
        commands in vec(vec(word(), 1..5), 0..12),
        chunks in chunks(),
    ) {
        let frames: Vec<_> = commands.iter().map(|it| command(it)).collect();
        let (found, rest) = requests(Protocol::Resp, &frames.concat(), &chunks);
        prop_assert!(rest.is_empty());
        let words: Vec<_> = commands.into_iter().map(|it| it.into_iter().map(Bytes::from).collect()).collect();
        prop_assert_eq!(found.iter().map(|it| &it.0[..]).collect::<Vec<_>>(), bytes_of(&frames));
        let said: Vec<_> = found.into_iter().map(|it| it.1).collect();
        prop_assert_eq!(said, words.into_iter().map(|it| Some(Said::Command(it))).collect::<Vec<_>>());
    }

    #[test]
    fn redis_replies_come_out_whole(values in vec(value(), 0..12), chunks in chunks()) {
        let (found, rest) = replies(Protocol::Resp, &values.concat(), &chunks);
        prop_assert!(rest.is_empty());
        prop_assert_eq!(bytes_of(&found), bytes_of(&values));
    }

    #[test]
    fn postgres_runs_come_out_whole_and_with_their_sql(runs in vec(run(), 0..12), chunks in chunks()) {
        let mut frames = vec![startup()];
        frames.extend(runs.iter().map(|it| it.0.clone()));
        let (found, rest) = requests(Protocol::Postgres, &frames.concat(), &chunks);
        prop_assert!(rest.is_empty());
        prop_assert_eq!(found.iter().map(|it| &it.0[..]).collect::<Vec<_>>(), bytes_of(&frames));
        let mut expected = vec![Some(Said::Opening)];
        expected.extend(runs.into_iter().map(|(_, sql)| Some(Said::Sql(sql.into_iter().map(Bytes::from).collect()))));
        prop_assert_eq!(found.into_iter().map(|it| it.1).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn postgres_messages_of_the_server_come_out_whole(
        messages in vec((prop::sample::select(b"RKZTDCEN123".to_vec()), vec(any::<u8>(), 0..40)), 0..12),
        chunks in chunks(),
    ) {
        let frames: Vec<_> = messages.iter().map(|(tag, body)| message(*tag, body)).collect();
        let (found, rest) = replies(Protocol::Postgres, &frames.concat(), &chunks);
        prop_assert!(rest.is_empty());
        prop_assert_eq!(bytes_of(&found), bytes_of(&frames));
    }

    #[test]
    fn kafka_frames_come_out_whole_both_ways(
        frames in vec((1..60_i16, any::<i32>(), vec(any::<u8>(), 0..60)), 0..12),
        chunks in chunks(),
    ) {
        let bytes: Vec<_> = frames.iter().map(|(key, number, rest)| kafka_frame(*key, *number, rest)).collect();
        let (found, rest) = requests(Protocol::Kafka, &bytes.concat(), &chunks);
        prop_assert!(rest.is_empty());
        prop_assert_eq!(found.iter().map(|it| &it.0[..]).collect::<Vec<_>>(), bytes_of(&bytes));
        let said: Vec<_> = found.into_iter().map(|it| it.1).collect();
        prop_assert_eq!(said, frames.iter().map(|it| Some(Said::Api(it.0))).collect::<Vec<_>>());
        let (found, _) = replies(Protocol::Kafka, &bytes.concat(), &chunks);
        prop_assert_eq!(bytes_of(&found), bytes_of(&bytes));
    }

    #[test]
    fn whatever_comes_nothing_is_lost_and_nothing_panics(
        bytes in vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$\r\n1Q\0\0\0".to_vec())], 0..400),
        chunks in chunks(),
    ) {
        for protocol in PROTOCOLS {
            let (found, rest) = requests(protocol, &bytes, &chunks);
            let found: Vec<_> = found.into_iter().map(|it| it.0).collect();
            prop_assert_eq!([&found.concat()[..], &rest].concat(), bytes.clone());
            let (found, rest) = replies(protocol, &bytes, &chunks);
            prop_assert_eq!([&found.concat()[..], &rest].concat(), bytes.clone());
        }
    }
}

#[test]
fn a_statement_is_known_by_its_name_until_it_is_closed() {
    let bind = message(b'B', b"\0s1\0\0\0\0\0\0\0");
    let (sync, close) = (message(b'S', b""), message(b'C', b"Ss1\0"));
    let prepare = message(b'P', b"s1\0UPDATE item\0\0\0");
    let bytes =
        [startup(), prepare, sync.clone(), bind.clone(), sync.clone(), close, sync.clone(), bind, sync];
    let (found, _) = requests(Protocol::Postgres, &bytes.concat(), &[7]);
    let texts: Vec<usize> = found
        .iter()
        .skip(1)
        .map(|it| match &it.1 {
            Some(Said::Sql(texts)) => texts.iter().filter(|text| &text[..] == b"UPDATE item").count(),
            other => panic!("not SQL: {other:?}"),
        })
        .collect();
    assert_eq!(texts, [1, 1, 0, 0]);
}

#[test]
fn a_run_that_is_flushed_goes_on_at_once_and_is_not_repeated() {
    let bytes = [startup(), message(b'P', b"\0SELECT 1\0\0\0"), message(b'H', b""), message(b'S', b"")];
    let mut dialect = Dialect::new(Protocol::Postgres);
    let mut input = BytesMut::from(&bytes.concat()[..]);
    dialect.next_from_client(&mut input).unwrap().unwrap();
    let part = dialect.next_from_client(&mut input).unwrap().unwrap();
    assert_eq!((part.bytes.len(), part.request), (bytes[1].len() + bytes[2].len(), None));
    let request = dialect.next_from_client(&mut input).unwrap().unwrap().request.unwrap();
    assert!(!request.repeatable);
    assert_eq!(request.said, Said::Sql(vec![Bytes::from("SELECT 1")]));
}

#[test]
fn a_copy_is_one_reply_for_each_run_that_the_server_answers() {
    let mut dialect = Dialect::new(Protocol::Postgres);
    let mut input = BytesMut::from(&message(b'G', b"\0\0\0")[..]);
    let reply = dialect.next_from_server(&mut input, Some(ReplyForm::UntilReadyOrCopy)).unwrap().unwrap();
    assert_eq!(reply.reply_to, super::dialect::ReplyTo::Oldest { ends: true });
    let mut input = BytesMut::from(&message(b'G', b"\0\0\0")[..]);
    let reply = dialect.next_from_server(&mut input, Some(ReplyForm::UntilReady)).unwrap().unwrap();
    assert_eq!(reply.reply_to, super::dialect::ReplyTo::Oldest { ends: false });
}

#[test]
fn a_kafka_producer_that_waits_for_no_copy_gets_no_reply() {
    // Behind the header: before version 3 the copies; from 3 on the transaction first; from 9 on both tagged.
    let cases: [(i16, &[u8]); 3] =
        [(2, b"\xff\xff"), (8, b"\xff\xff\xff\xff"), (9, b"\xff\xff\x01\x05\x02ab\x00")];
    for (version, before) in cases {
        for (copies, reply) in [(0_i16, ReplyForm::None), (-1, ReplyForm::Numbered(7))] {
            let mut body = Vec::new();
            body.put_i16(0);
            body.put_i16(version);
            body.put_i32(7);
            body.extend(before);
            body.put_i16(copies);
            let mut frame = Vec::new();
            frame.put_i32(i32::try_from(body.len()).unwrap());
            frame.extend(body);
            let mut input = BytesMut::from(&frame[..]);
            let found = Dialect::new(Protocol::Kafka).next_from_client(&mut input).unwrap().unwrap();
            assert_eq!(found.request.unwrap().reply, reply, "version {version}");
        }
    }
}

#[test]
fn the_port_of_the_broker_alone_is_changed() {
    let (broker, proxy) = ("127.0.0.1:9092".parse().unwrap(), "127.0.0.1:4711".parse().unwrap());
    let named = |port: i32| {
        let mut bytes = b"before127.0.0.1".to_vec();
        bytes.put_i32(port);
        bytes.extend(b"after");
        Bytes::from(bytes)
    };
    assert_eq!(super::kafka::readdress(named(9092), broker, proxy), named(4711));
    assert_eq!(super::kafka::readdress(named(9093), broker, proxy), named(9093));
}
