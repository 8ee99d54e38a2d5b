//! The HTML report as a file: whether it can be written is known before the storm, and no reader
//! ever sees half of it.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use doorbuster_loadtest::{Assert, Report};
use tempfile::NamedTempFile;

use super::output;

/// What is asserted of a report, and where it is written beside the output.
#[derive(Args)]
pub(crate) struct ReportArgs {
    /// Write the report with plots as one HTML file; an older file there is replaced
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Expect this of the report, such as `202.p99<100ms`, `answers.503==0` or `sold==10000`; may
    /// be given several times
    #[arg(long = "assert", value_name = "EXPR")]
    asserts: Vec<Assert>,
}

impl ReportArgs {
    /// Finds out whether the report can be written: before the storm, not after it.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Some(path) = &self.report else {
            return Ok(());
        };
        anyhow::ensure!(!path.is_dir(), "--report {}: this is a folder, a file is wanted", path.display());
        // Dropping it removes it again.
        draft(path).map(|_| ())
    }

    /// Judges the asserts, and notes the command.
    pub(super) fn judge(&self, report: &mut Report) {
        report.judge(&self.asserts);
        let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
        report.conditions.command = Some(command_line(args));
    }

    /// Writes the file: after the report was printed, so that a full disk does not lose it.
    pub(super) fn write(&self, report: &Report) -> anyhow::Result<()> {
        if let Some(path) = &self.report {
            write(path, &report.html())?;
            output::say(&format!("report: {}", path.display()));
        }
        Ok(())
    }
}

/// A file beside the report, so that the rename stays within one file system.
fn draft(path: &Path) -> anyhow::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new()
        .prefix(".doorbuster-report-")
        // As any new file: what the umask leaves of it.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .with_context(|| format!("--report {}: {} cannot be written to", path.display(), folder.display()))
}

fn write(path: &Path, page: &str) -> anyhow::Result<()> {
    let mut draft = draft(path)?;
    draft
        .write_all(page.as_bytes())
        .and_then(|()| draft.as_file().sync_all())
        .with_context(|| format!("the report {} cannot be written", path.display()))?;
    draft.persist(path).with_context(|| format!("the report {} cannot be put in place", path.display()))?;
    Ok(())
}

/// The command as it can be given to a shell again.
fn command_line(args: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    let quoted = args.map(|arg| {
        if !arg.is_empty() && arg.chars().all(plain) {
            arg
        } else {
            format!("'{}'", arg.replace('\'', r"'\''"))
        }
    });
    std::iter::once("doorbuster".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{ReportArgs, command_line, write};

    fn args(report: PathBuf) -> ReportArgs {
        ReportArgs { report: Some(report), asserts: Vec::new() }
    }

    #[test]
    fn path_that_cannot_be_written_is_refused_before_the_storm() {
        let folder = tempfile::tempdir().unwrap();
        let missing = args(folder.path().join("missing").join("x.html")).check().unwrap_err().to_string();
        assert!(missing.contains("cannot be written to"), "{missing}");
        let is_folder = args(folder.path().to_owned()).check().unwrap_err().to_string();
        assert!(is_folder.contains("this is a folder"), "{is_folder}");
    }

    #[test]
    fn check_leaves_nothing_behind_and_write_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.html");
        args(path.clone()).check().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        write(&path, "old and long").unwrap();
        write(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn command_line_can_be_pasted_into_a_shell() {
        let args = ["demo", "--assert", "202.p99<100ms", "--report", "it's.html", ""];
        assert_eq!(
            command_line(args.into_iter().map(str::to_owned)),
            r"doorbuster demo --assert '202.p99<100ms' --report 'it'\''s.html' ''"
        );
    }
}
