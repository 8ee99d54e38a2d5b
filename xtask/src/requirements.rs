//! The outside programs an area needs, how to get them, and what happens without them.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use doorbuster_services::command::line_of;

use crate::run::reported;

/// One outside program.
#[derive(Debug)]
pub(crate) struct Requirement {
    /// Its name on the search path.
    pub(crate) program: &'static str,
    /// What it is needed for, to go on from "it".
    pub(crate) why: &'static str,
    /// Where it comes from.
    pub(crate) source: Source,
    /// What its absence means.
    pub(crate) absence: Absence,
}

/// Where a program comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A Debian package.
    Debian(&'static str),
    /// A component of the Rust toolchain.
    Component(&'static str),
}

/// What it means when a program is not there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The area fails: a test that cannot run is not a test that passed.
    Fatal,
    /// The area goes on, and says aloud what it left out.
    Announced,
}

/// Git lists the files that tidy reads.
pub(crate) const GIT: Requirement = Requirement {
    program: "git",
    why: "lists the files of the repository",
    source: Source::Debian("git"),
    absence: Absence::Fatal,
};

/// promtool checks the metrics that the server exports.
pub(crate) const PROMTOOL: Requirement = Requirement {
    program: "promtool",
    why: "checks the exported metrics",
    source: Source::Debian("prometheus"),
    absence: Absence::Fatal,
};

/// Python runs schemathesis and others' tools. (The package brings the program and its virtual environments.)
pub(crate) const PYTHON: Requirement = Requirement {
    program: "python3",
    why: "runs schemathesis, which tries the documented API",
    source: Source::Debian("python3-venv"),
    absence: Absence::Fatal,
};

/// Chromium shows the pages as a buyer's browser does.
pub(crate) const CHROMIUM: Requirement = Requirement {
    program: "chromium",
    why: "opens the pages of buyers",
    source: Source::Debian("chromium"),
    absence: Absence::Fatal,
};

/// Node runs the stories in the browser.
pub(crate) const NODE: Requirement = Requirement {
    program: "node",
    why: "runs the stories that are told in the browser",
    source: Source::Debian("nodejs"),
    absence: Absence::Fatal,
};

/// npm brings the libraries that drive the browser and look for barriers on a page.
pub(crate) const NPM: Requirement = Requirement {
    program: "npm",
    why: "installs playwright-core and axe-core",
    source: Source::Debian("npm"),
    absence: Absence::Fatal,
};

/// Whether the program is on the search path, or beside the cargo that started us.
pub(crate) fn is_there(requirement: &Requirement) -> bool {
    match requirement.source {
        Source::Debian(_) => on_search_path(requirement.program),
        Source::Component(_) => starts(requirement.program),
    }
}

/// Makes sure of `requirements`: installs what is missing if `install`, else prints how.
/// Answers whether the area can run.
///
/// # Errors
/// An installer cannot be started.
pub(crate) fn ensure(requirements: &[&Requirement], install: bool) -> Result<bool> {
    let missing: Vec<&Requirement> =
        requirements.iter().copied().filter(|requirement| !is_there(requirement)).collect();
    if missing.is_empty() {
        return Ok(true);
    }

    let commands = install_commands(&missing, is_superuser(), on_search_path("rustup"));
    if install {
        for mut command in commands {
            // A failure shows below, by the program that is still missing.
            let _succeeded = reported(&mut command)?;
        }
    } else {
        for requirement in &missing {
            eprintln!("missing: {}, which {}", requirement.program, requirement.why);
        }
        print_commands(&commands);
    }
    let lacking = missing.iter().filter(|requirement| !is_there(requirement));
    let fatal: Vec<_> = lacking.filter(|requirement| requirement.absence == Absence::Fatal).collect();
    for requirement in &fatal {
        eprintln!("cannot run without {}, which {}", requirement.program, requirement.why);
    }
    Ok(fatal.is_empty())
}

fn print_commands(commands: &[Command]) {
    if commands.is_empty() {
        eprintln!("there is no rustup here to install it with");
        return;
    }
    eprintln!("install what is missing with these commands, or pass --install:");
    for command in commands {
        eprintln!("    {}", line_of(command));
    }
}

/// The commands that install what is missing, in order.
fn install_commands(missing: &[&Requirement], superuser: bool, rustup: bool) -> Vec<Command> {
    let mut packages: Vec<&str> = Vec::new();
    let mut components: Vec<&str> = Vec::new();
    for requirement in missing {
        match requirement.source {
            Source::Debian(package) => packages.push(package),
            Source::Component(component) => components.push(component),
        }
    }
    packages.dedup();

    let mut commands = Vec::new();
    if !packages.is_empty() {
        commands.push(apt_get(&["update"], superuser));
        let install = ["install", "-y", "--no-install-recommends"];
        commands.push(apt_get(&[&install[..], &packages].concat(), superuser));
    }
    if !components.is_empty() && rustup {
        let mut add = Command::new("rustup");
        add.args(["component", "add"]).args(components);
        commands.push(add);
    }
    commands
}

fn apt_get(arguments: &[&str], superuser: bool) -> Command {
    let mut command = Command::new(if superuser { "apt-get" } else { "sudo" });
    if !superuser {
        command.arg("apt-get");
    }
    // Nobody is there to answer a package's questions.
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn is_superuser() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn on_search_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}

/// Whether the program can be started, from the search path or beside the cargo that started us.
/// (rustup puts a stand-in for each tool on the search path, installed or not: only starting it
/// tells the difference.)
fn starts(program: &str) -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_default();
    let beside = Path::new(&cargo).with_file_name(program);
    [Path::new(program), &beside].into_iter().any(|candidate| {
        let output = Command::new(candidate).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(program: &'static str, source: Source, absence: Absence) -> Requirement {
        Requirement { program, why: "is planted", source, absence }
    }

    #[test]
    fn commands_install_packages_after_an_update_and_components_with_rustup() {
        let redis = needs("redis-server", Source::Debian("redis-server"), Absence::Fatal);
        let fmt = needs("cargo-fmt", Source::Component("rustfmt"), Absence::Announced);
        let lines = |superuser, rustup| -> Vec<String> {
            install_commands(&[&redis, &fmt], superuser, rustup).iter().map(line_of).collect()
        };
        assert_eq!(
            lines(true, true),
            [
                "apt-get update",
                "apt-get install -y --no-install-recommends redis-server",
                "rustup component add rustfmt",
            ]
        );
        assert_eq!(
            lines(false, false),
            ["sudo apt-get update", "sudo apt-get install -y --no-install-recommends redis-server",]
        );
    }

    #[test]
    fn a_missing_service_fails_and_a_missing_tool_of_the_toolchain_does_not() {
        let service = needs("no-such-program-here", Source::Debian("none"), Absence::Fatal);
        let tool = needs("no-such-program-here", Source::Component("none"), Absence::Announced);
        assert!(!ensure(&[&service], false).expect("nothing is started"));
        assert!(ensure(&[&tool], false).expect("nothing is started"));
        assert!(ensure(&[], false).expect("nothing is started"));
    }
}
