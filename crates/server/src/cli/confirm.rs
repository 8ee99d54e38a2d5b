//! Asks before something that cannot be undone.

use std::io::IsTerminal;

use clap::Args;

use super::failure::WrongUsage;
use super::output;

/// Consent given in advance.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Consent {
    /// Do not ask; needed where nobody can be asked, such as in a script
    #[arg(long)]
    yes: bool,
}

impl Consent {
    /// Goes on when the person agrees. `what` says in a sentence what will happen.
    pub(super) fn ask(self, what: &str) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            let text = format!("{what} Nobody can be asked here: repeat it with --yes if that is wanted");
            return Err(WrongUsage(text).into());
        }
        output::say(&format!("{what} Go on? [y/N]"));
        let mut answer = String::new();
        stdin.read_line(&mut answer)?;
        let agreed = ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
        anyhow::ensure!(agreed, "nothing was changed");
        Ok(())
    }
}
