//! `doorbuster serve`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use doorbuster_engine::clock::SystemClock;
use doorbuster_engine::fault_points;
use tokio::signal::unix::{SignalKind, signal};

use super::{ConfigSource, Verdict, limits};
use crate::app::App;
use crate::config::Role;
use crate::pages::Site;
use crate::telemetry;

/// Run a server: gateway, recorder and keeper in one process, or some of these roles.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster serve --data-dir ./data --jwt-secret-file secret\n  DOORBUSTER__SERVER__LISTEN=0.0.0.0:8080 doorbuster serve --config shop.toml\n  doorbuster serve --config shop.toml --roles gateway      more of them, on other machines, share the load\n  doorbuster serve --config shop.toml --roles recorder,keeper"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    source: ConfigSource,
    /// What this process does: gateway, recorder, keeper, with commas between (server.roles)
    #[arg(long, value_name = "ROLES")]
    roles: Option<String>,
    /// Address and port for buyers (server.listen)
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address and port for the staff (admin.listen)
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// Folder of the embedded queue and ledger (data.dir)
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// File with the secret of access tokens (gate.jwt.secret_file)
    #[arg(long, value_name = "FILE")]
    jwt_secret_file: Option<PathBuf>,
}

pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<Verdict> {
    let path = |path: Option<PathBuf>| path.map(|path| path.display().to_string());
    let flags: Vec<(String, String)> = [
        ("server.roles", args.roles),
        ("server.listen", args.listen),
        ("admin.listen", args.admin_listen),
        ("data.dir", path(args.data_dir)),
        ("gate.jwt.secret_file", path(args.jwt_secret_file)),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
    .collect();
    let config = args.source.read(&flags)?;
    telemetry::start(&config.log);
    fault_points::check_environment()?;
    // Who serves no buyers has few connections.
    let gateway = config.server.roles.contains(&Role::Gateway);
    let files = gateway.then(|| limits::too_few(config.server.connections_max)).flatten();
    for warning in config.warnings().into_iter().chain(files) {
        tracing::warn!("{warning}");
    }
    let app = App::start(&config, fault_points::clock(Arc::new(SystemClock::new())), Site::default()).await?;
    tracing::info!(file = %app.admin_token_file.display(), "the staff's token is in this file");
    stop_on_signal(app).await?;
    Ok(Verdict::Fine)
}

/// Exit code of a server that was stopped by a second signal.
const STOPPED_AT_ONCE: i32 = 1;

/// Drains on the first SIGTERM or SIGINT, stops at once on the second.
pub(super) async fn stop_on_signal(app: App) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping: running requests get their time; a second signal stops at once");
    tokio::select! {
        () = app.stop() => {}
        // What is durable stays; nothing else was promised to anybody.
        _ = terminate.recv() => std::process::exit(STOPPED_AT_ONCE),
        _ = interrupt.recv() => std::process::exit(STOPPED_AT_ONCE),
    }
    Ok(())
}
