//! How commands reach a running server.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use doorbuster_loadtest::AdminClient;

use crate::admin;

/// The staff's listener of a running server.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdminArgs {
    /// Address of the staff's listener
    // Global: a person writes it before or after `sale show 1` alike.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "DOORBUSTER_ADMIN_URL",
        default_value = "http://127.0.0.1:8081"
    )]
    pub(crate) admin_url: String,
    /// File with a staff's token
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "DOORBUSTER_ADMIN_TOKEN_FILE",
        default_value = "doorbuster-data/admin.token"
    )]
    pub(crate) admin_token_file: PathBuf,
    /// PEM file with the authority to trust at an https address, instead of those of this system
    #[arg(long, global = true, value_name = "FILE", env = "DOORBUSTER_ADMIN_CA")]
    pub(crate) admin_ca: Option<PathBuf>,
}

impl AdminArgs {
    pub(crate) fn client(&self) -> anyhow::Result<AdminClient> {
        let token = admin::first_token(&self.admin_token_file)?;
        let client = AdminClient::new(&self.admin_url, &token)
            .with_context(|| format!("--admin-url {}", self.admin_url))?;
        let Some(file) = &self.admin_ca else { return Ok(client) };
        let named = || format!("--admin-ca {}", file.display());
        let authority = std::fs::read(file).with_context(named)?;
        client.trusting(&authority).with_context(named)
    }
}
