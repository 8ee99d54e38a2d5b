//! Legal values that are dangerous, alone or together.

use std::time::Duration;

use super::{Config, LogLevel, ProviderName, QueueBackend};

impl Config {
    /// What is allowed and yet likely to hurt, one sentence each with the keys in it.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        self.warn_of_exposure(&mut warnings);
        self.warn_of_retention(&mut warnings);
        self.warn_of_timeouts(&mut warnings);
        self.warn_of_the_gate(&mut warnings);
        self.warn_of_payments(&mut warnings);
        self.warn_of_events(&mut warnings);
        warnings
    }

    fn warn_of_exposure(&self, warnings: &mut Vec<String>) {
        if self.admin.listen.ip().is_unspecified() {
            warnings.push(format!(
                "admin.listen = {} offers the staff's listener on every network of this machine: choose \
                 127.0.0.1 or a private address",
                self.admin.listen
            ));
        }
        let temporary = std::env::temp_dir();
        if self.uses_data_dir() && self.data.dir.starts_with(&temporary) {
            warnings.push(format!(
                "data.dir is in {}, which may be emptied at any time: the ledger in it is the only record of \
                 who bought",
                temporary.display()
            ));
        }
        let jwt = &self.gate.jwt;
        if !jwt.secret.reveal().is_empty() && !jwt.secret_file.as_os_str().is_empty() {
            warnings.push(
                "gate.jwt.secret and gate.jwt.secret_file are both set: the file is not read".to_owned(),
            );
        }
    }

    fn warn_of_retention(&self, warnings: &mut Vec<String>) {
        let retention = self.kafka.retention;
        if self.queue.backend == QueueBackend::Kafka && retention < Duration::from_secs(24 * 3_600) {
            warnings.push(format!(
                "kafka.retention = {} is below 1day: orders are deleted before they are recorded when the ledger \
                 is away for longer",
                humantime::format_duration(retention)
            ));
        }
    }

    fn warn_of_timeouts(&self, warnings: &mut Vec<String>) {
        let server = &self.server;
        let shown = humantime::format_duration;
        if server.idle_timeout < server.header_timeout {
            warnings.push(format!(
                "server.idle_timeout = {} is shorter than server.header_timeout = {}: buyers who wait for the \
                 start lose their connection and open a new one in the rush",
                shown(server.idle_timeout),
                shown(server.header_timeout)
            ));
        }
        if server.drain_timeout < server.body_timeout {
            warnings.push(format!(
                "server.drain_timeout = {} is shorter than server.body_timeout = {}: a stop may cut off \
                 requests that are still allowed to arrive",
                shown(server.drain_timeout),
                shown(server.body_timeout)
            ));
        }
        if server.connections_per_address_max > server.connections_max {
            warnings.push(format!(
                "server.connections_per_address_max = {} is above server.connections_max = {}: one address may \
                 take every connection",
                server.connections_per_address_max, server.connections_max
            ));
        }
        if self.sale.release_spread > Duration::from_secs(1) {
            warnings.push(format!(
                "sale.release_spread = {} keeps units of closed orders off sale for longer than 1s, while buyers \
                 are told that they may return",
                humantime::format_duration(self.sale.release_spread)
            ));
        }
        if self.sale.preheat_lead < Duration::from_secs(60) {
            warnings.push(format!(
                "sale.preheat_lead = {} leaves no time to mend a stock that does not load before its sale \
                 opens: a minute is the least that helps",
                shown(self.sale.preheat_lead)
            ));
        }
        if self.log.level == LogLevel::Debug {
            warnings.push(
                "log.level = debug writes a line for every order: a rush is slower and the log grows fast"
                    .to_owned(),
            );
        }
    }

    fn warn_of_payments(&self, warnings: &mut Vec<String>) {
        let (payments, listen) = (&self.payments, self.server.listen);
        if payments.provider == ProviderName::Sandbox && !listen.ip().is_loopback() {
            warnings.push(format!(
                "payments.provider = sandbox with server.listen = {listen}: whoever reaches the sandbox's page can \
                 declare orders paid without paying; it is for demonstrations on one machine"
            ));
        }
        let (tls, url) = (self.server.tls.is_on(), &payments.public_url);
        if payments.provider != ProviderName::None && tls && !url.starts_with("https://") {
            let said =
                if url.is_empty() { "empty".to_owned() } else { format!("{url}, which is not https,") };
            warnings.push(format!(
                "payments.public_url is {said} while server.tls is on: buyers are sent to an address that the \
                 certificate is not for, or to plain HTTP; set it to https:// and the certificate's name"
            ));
        }
        let nowhere = payments.public_url.is_empty() && listen.ip().is_unspecified();
        if payments.provider != ProviderName::None && nowhere {
            warnings.push(format!(
                "payments.public_url is empty with server.listen = {listen}: buyers are sent back to this machine's \
                 loopback after they paid"
            ));
        }
        if payments.webhook_tolerance > Duration::from_secs(15 * 60) {
            warnings.push(format!(
                "payments.webhook_tolerance = {} is above 15m: a webhook that was overheard can be sent again for \
                 that long",
                humantime::format_duration(payments.webhook_tolerance)
            ));
        }
        let url = &payments.stripe.api_url;
        if payments.provider == ProviderName::Stripe && !url.starts_with("https://") {
            warnings.push(format!(
                "payments.stripe.api_url = {url} is not https: the account's key is sent in the clear"
            ));
        }
    }

    fn warn_of_the_gate(&self, warnings: &mut Vec<String>) {
        let tokens = &self.gate.sale_tokens;
        if tokens.lifetime <= tokens.issue_before {
            warnings.push(format!(
                "gate.sale_tokens.lifetime = {} is not longer than gate.sale_tokens.issue_before = {}: who comes early \
                 has a token that is over when the sale opens",
                humantime::format_duration(tokens.lifetime),
                humantime::format_duration(tokens.issue_before)
            ));
        }
        let gate = &self.gate;
        let shown = humantime::format_duration;
        if gate.outbox_age_max < Duration::from_secs(5) {
            warnings.push(format!(
                "gate.outbox_age_max = {} is below 5s: one slow write to the disk refuses every buyer as BUSY",
                shown(gate.outbox_age_max)
            ));
        }
        if gate.ledger_silence_max < Duration::from_secs(5) {
            warnings.push(format!(
                "gate.ledger_silence_max = {} is below 5s: a restart of the ledger refuses every buyer as BUSY",
                shown(gate.ledger_silence_max)
            ));
        }
        if gate.queue_lag_max < 1_000 {
            warnings.push(format!(
                "gate.queue_lag_max = {} is below 1000: the first burst of a sale refuses its own buyers as BUSY",
                gate.queue_lag_max
            ));
        }
        if gate.levels.is_empty() && !gate.jwt.level_claim.is_empty() {
            warnings.push(format!(
                "gate.jwt.level_claim = {} names a claim and gate.levels no level: nobody has one",
                gate.jwt.level_claim.escape_default()
            ));
        }
        if gate.jwt.lifetime_max > Duration::from_secs(7 * 24 * 3_600) {
            warnings.push(format!(
                "gate.jwt.lifetime_max = {} is above 7days: a stolen access token stays good that long",
                shown(gate.jwt.lifetime_max)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(flags: &[(&str, &str)]) -> Vec<String> {
        let flags: Vec<_> =
            flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::read(None, [], &flags).unwrap().warnings()
    }

    #[test]
    fn the_defaults_warn_of_nothing() {
        assert_eq!(warnings(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_legal_but_dangerous_value_warns_in_words_that_name_its_key() {
        for (key, value) in [
            ("admin.listen", "0.0.0.0:8081"),
            ("admin.listen", "[::]:8081"),
            ("server.idle_timeout", "2s"),
            ("server.drain_timeout", "1s"),
            ("server.connections_per_address_max", "30000"),
            ("gate.outbox_age_max", "4s"),
            ("gate.ledger_silence_max", "4s"),
            ("gate.queue_lag_max", "10"),
            ("gate.jwt.lifetime_max", "30days"),
            ("gate.jwt.level_claim", "tier"),
            ("sale.preheat_lead", "5s"),
            ("sale.release_spread", "2s"),
            ("log.level", "debug"),
            ("payments.webhook_tolerance", "1h"),
        ] {
            let warnings = warnings(&[(key, value)]);
            assert_eq!(warnings.len(), 1, "{key}: {warnings:?}");
            assert!(warnings[0].contains(key), "{warnings:?}");
        }
        let short = [("queue.backend", "kafka"), ("kafka.retention", "1h")];
        assert!(warnings(&short)[0].contains("kafka.retention"));
        assert!(warnings(&short[1..]).is_empty(), "there is no topic");
        let exposed = [("payments.provider", "sandbox"), ("server.listen", "0.0.0.0:8080")];
        assert!(warnings(&exposed)[0].contains("payments.provider"));
        assert!(warnings(&exposed[..1]).is_empty() && warnings(&exposed[1..]).is_empty());
        let nowhere = [("payments.provider", "stripe"), ("server.listen", "[::]:8080")];
        assert!(warnings(&nowhere)[0].contains("payments.public_url"));
        let tls = [
            ("server.tls.certificate_file", "a"),
            ("server.tls.key_file", "b"),
            ("payments.provider", "stripe"),
        ];
        assert!(warnings(&tls)[0].contains("payments.public_url is empty while server.tls"));
        for (url, count) in [("http://sale.example", 1), ("https://sale.example", 0)] {
            assert_eq!(warnings(&[&tls[..], &[("payments.public_url", url)]].concat()).len(), count, "{url}");
        }
        let clear = [("payments.provider", "stripe"), ("payments.stripe.api_url", "http://stripe.test")];
        assert!(warnings(&clear)[0].contains("payments.stripe.api_url"));
        let shop = r#"[{ name = "shop", url = "http://10.0.0.1/", secret_file = "s" }]"#;
        let clear = [("events.endpoints", shop), ("events.allow_private", "10.0.0.1")];
        assert!(warnings(&clear)[0].contains("events.endpoints"));
        let both = [("gate.jwt.secret", "a"), ("gate.jwt.secret_file", "b")];
        assert!(warnings(&both)[0].contains("not read"));
    }
}
