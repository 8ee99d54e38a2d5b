//! The real binary as a person or a script runs it: exit codes, where text goes, what it says.

mod program;
mod rehearsals;
mod stories;

use std::net::TcpListener;

use program::{Folder, STAFF, stdout_of};

const DOCS: &str = include_str!("../../../../docs/cli.md");

#[test]
fn wrong_usage_exits_with_2_and_does_nothing() {
    let folder = Folder::new();
    for args in [
        &["bogus"][..],
        &[],
        &["sale"],
        &["sale", "create"],
        &["sale", "create", "--file", "a.toml", "--name", "b"],
        &["serve", "--bogus"],
        &["serve", "--set", "server.cores"],
        &["completions", "tcsh"],
        // Dangerous, and nobody can be asked.
        &["sale", "close", "1"],
        &["rebuild", "1"],
        &["repair"],
    ] {
        let ran = folder.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_failure_exits_with_1_and_says_the_cause_and_what_to_do_on_stderr() {
    let folder = Folder::new();
    folder.write("token", &format!("admin {STAFF}\n"));
    folder.write("broken.toml", "[server\n");
    folder.write("wrong.toml", "[server]\ncors = 2\nidle_timeout = 30\n");
    folder.write("short", "short");
    folder.write("long", "an-openly-known-secret-of-a-test-with-40-bytes");
    folder.write("sale.toml", "name = \"a sale without items\"\n");
    let nobody =
        TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it has an address");
    let nobody = format!("http://{nobody}");
    let cases: &[(&[&str], &[&str])] = &[
        (&["sale", "list"], &["admin.token", "--admin-token-file"]),
        (
            &["sale", "list", "--admin-token-file", "token", "--admin-url", &nobody],
            &["cannot be reached", "doorbuster serve", "--admin-url"],
        ),
        (
            &["sale", "list", "--admin-token-file", "token", "--admin-url", "ftp://x"],
            &["--admin-url ftp://x"],
        ),
        (&["config", "check", "--config", "missing.toml"], &["missing.toml", "config init"]),
        (&["config", "check", "--config", "broken.toml"], &["broken.toml, line 1"]),
        (
            &["config", "check", "--config", "wrong.toml"],
            &["server.cors", "did you mean `server.cores`", "write \"30s\"", "wrong.toml"],
        ),
        (&["serve"], &["no secret", "gate.jwt.secret_file", "openssl rand"]),
        (&["serve", "--jwt-secret-file", "short"], &["gate.jwt.secret"]),
        (
            &["serve", "--jwt-secret-file", "short", "--admin-listen", "0.0.0.0:0"],
            &["WARN", "admin.listen = 0.0.0.0:0 offers the staff's listener on every network"],
        ),
        (&["serve", "--jwt-secret-file", "missing"], &["gate.jwt.secret_file", "missing"]),
        (&["serve", "--jwt-secret-file", "long", "--data-dir", "short/x"], &["short/x", "may write to"]),
        (&["config", "init", "short"], &["short is there already"]),
        (&["audit", "--data-dir", "."], &["not a data directory"]),
        (&["sale", "create", "--file", "sale.toml"], &["sale.toml is not a sale", "sale create --help"]),
        (&["token", "mint", "--sub", "a", "--signing-key-file", "missing"], &["missing", "cannot be read"]),
    ];
    for (args, says) in cases {
        let ran = folder.run(args);
        assert_eq!(ran.code, 1, "{args:?}: {ran:?}");
        assert!(ran.stdout.is_empty(), "{args:?}: {ran:?}");
        for words in *says {
            assert!(ran.stderr.contains(words), "{args:?} should say {words:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn config_never_prints_a_secret() {
    let folder = Folder::new();
    folder.write("c.toml", "[gate.jwt]\nsecret = \"hush-in-the-file\"\n");
    folder.write("wrong.toml", "[gate.jwt]\nsecret = 77007700\n");
    let by_env = [("DOORBUSTER__GATE__JWT__SECRET", "hush-in-the-environment")];
    for args in [
        &["config", "show"][..],
        &["config", "show", "--output", "json"],
        &["config", "show", "--config", "c.toml"],
        &["config", "show", "--set", "gate.jwt.secret=hush-in-a-flag"],
        &["config", "check", "--config", "wrong.toml"],
        &["doctor", "--config", "c.toml"],
    ] {
        let ran = folder.run_with(args, &by_env);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!all.contains("hush") && !all.contains("7700"), "{args:?}: {all}");
    }
    let shown = stdout_of(folder.run_with(&["config", "show"], &by_env));
    assert!(shown.contains("secret = \"(set)\""), "{shown}");
}

#[test]
fn the_configuration_is_shown_checked_written_and_described() {
    let folder = Folder::new();
    let shown = stdout_of(folder.run(&["config", "show", "--set", "server.cores=3", "--output", "json"]));
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["server"]["cores"], 3);

    let dangerous = folder.run(&["config", "check", "--set", "admin.listen=0.0.0.0:8081"]);
    assert_eq!((dangerous.code, dangerous.stdout.trim()), (0, "the configuration is valid"));
    assert!(dangerous.stderr.starts_with("warning: admin.listen"), "{dangerous:?}");

    let printed = stdout_of(folder.run(&["config", "init", "-"]));
    stdout_of(folder.run(&["config", "init"]));
    assert_eq!(folder.read("doorbuster.toml"), printed);
    stdout_of(folder.run(&["config", "check", "--config", "doorbuster.toml"]));
    assert_eq!(folder.run(&["config", "init"]).code, 1, "a file is never overwritten");

    let schema = stdout_of(folder.run(&["config", "schema"]));
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
    let listen = schema.pointer("/properties/server/properties/listen").expect("the key is described");
    assert_eq!(listen["default"], "127.0.0.1:8080");
}

#[test]
fn doctor_says_line_by_line_what_fails_and_what_to_do() {
    let folder = Folder::new();
    folder.write("secret", "an-openly-known-secret-of-a-test-with-40-bytes");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("admin.listen={}", taken.local_addr().expect("it has an address"));
    let sound = ["--set", "gate.jwt.secret_file=secret", "--set", "server.listen=127.0.0.1:0"];
    let small = ["--set", "server.connections_max=100", "--set", "admin.listen=127.0.0.1:0"];
    let ran = folder.run(&[&["doctor"][..], &sound, &small].concat());
    assert_eq!(ran.code, 0, "{ran:?}");

    let args = [&["doctor", "--output", "json", "--set", &address][..], &sound, &small[..2]].concat();
    let ran = folder.run(&args);
    let examined: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((ran.code, &examined["ok"]), (1, &false.into()), "{ran:?}");
    let checks = examined["checks"].as_array().expect("a list");
    let failed: Vec<_> = checks.iter().filter(|check| check["level"] == "fail").collect();
    assert_eq!((failed.len(), &failed[0]["name"]), (1, &"staff's port".into()), "{failed:?}");
    drop(taken);

    let ran = folder.run(&["doctor", "--set", "server.cors=1", "--set", "log.level=loud"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("FAIL")).count(), 2, "{ran:?}");
    let ran = folder.run(&["doctor"]);
    assert!(ran.code == 1 && ran.stdout.contains("openssl rand"), "{ran:?}");
}

/// Every command beneath `path`, found in the help itself; commands with commands are left out.
fn leaves(folder: &Folder, path: &[String]) -> Vec<(Vec<String>, String)> {
    let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
    let help = stdout_of(folder.run(&args));
    assert!(help.contains("Usage:"), "{path:?}: {help}");
    let inner: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    if inner.is_empty() {
        return vec![(path.to_vec(), help)];
    }
    inner.into_iter().flat_map(|name| leaves(folder, &[path, &[name.to_owned()]].concat())).collect()
}

#[test]
fn every_command_has_help_and_an_example_where_one_helps() {
    /// One id, or nothing at all.
    const PLAIN: [&str; 5] = ["sale list", "sale show", "sale preheat", "sale open", "sale pause"];
    let folder = Folder::new();
    let leaves = leaves(&folder, &[]);
    assert!(leaves.len() > 20, "{leaves:?}");
    for (path, help) in &leaves {
        let name = path.join(" ");
        let described =
            help.lines().next().is_some_and(|line| !line.is_empty() && !line.starts_with("Usage"));
        assert!(described, "{name}: {help}");
        assert!(PLAIN.contains(&name.as_str()) || help.contains("Example"), "{name} has no example: {help}");
    }
    for (path, _) in &leaves {
        let command = format!("`doorbuster {}`", path.join(" "));
        assert!(DOCS.contains(&command), "docs/cli.md does not name {command}");
    }
    let help = stdout_of(folder.run(&["--help"]));
    for code in ["0 all is well", "1 it failed", "2 wrong usage", "3 a balance", "99 an `--assert`"] {
        assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains(code), "{code}: {help}");
    }
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout_of(folder.run(&["completions", shell]));
        assert!(script.contains("dry-run") && script.contains("rebuild"), "{shell}: {script}");
    }
    let page = stdout_of(folder.run(&["man"]));
    assert!(page.contains(".TH doorbuster") && page.contains("Exit codes"), "{page}");
    stdout_of(folder.run(&["man", "--dir", "pages"]));
    assert!(folder.read("pages/doorbuster-sale-clone.1").contains("opens\\-at"));
}

#[test]
fn what_is_not_a_terminal_sees_no_escapes() {
    let folder = Folder::new();
    folder.write("short", "short");
    for environment in [&[][..], &[("NO_COLOR", "1"), ("TERM", "xterm-256color")]] {
        for args in [
            &["--help"][..],
            &["bogus"],
            &["sale", "list"],
            &["doctor"],
            &["serve", "--jwt-secret-file", "short", "--admin-listen", "0.0.0.0:0"],
        ] {
            let ran = folder.run_with(args, environment);
            assert!(!format!("{}{}", ran.stdout, ran.stderr).contains('\u{1b}'), "{args:?}: {ran:?}");
        }
    }
}
