//! A provider of captchas: it gives out answers as if somebody had solved a captcha, judges each of them once, and
//! has the script that shows one. It judges as Turnstile and hCaptcha do, or fails as the test wants.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use serde_json::{Value, json};

use crate::http::{Http, Reply, Request};

/// What an answer was given out for.
#[derive(Clone, Debug, Default)]
pub struct Solved {
    /// The host that the captcha was shown on.
    pub hostname: String,
    /// What the widget was given as its action.
    pub action: String,
    /// What the widget was given along.
    pub cdata: String,
}

/// How the provider answers whoever has it judge.
#[derive(Clone, Debug)]
pub enum Says {
    /// Whether the answer is good.
    Verdicts,
    /// This status with this body.
    Text(u16, String),
    /// 302 to this address.
    Redirect(String),
    /// Nothing: it takes the request and keeps the connection open.
    Silence,
    /// The end of the connection.
    End,
}

/// A provider on a port of the loopback. It ends with its value.
pub struct Judge {
    http: Http,
    told: Arc<Mutex<Told>>,
}

struct Told {
    secret: String,
    says: Says,
    given: HashMap<String, Solved>,
    judged: HashSet<String>,
    asked: Vec<Vec<(String, String)>>,
}

impl Judge {
    /// A provider that knows whoever has this secret.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(secret: &str) -> Result<Self> {
        let told = Arc::new(Mutex::new(Told {
            secret: secret.to_owned(),
            says: Says::Verdicts,
            given: HashMap::new(),
            judged: HashSet::new(),
            asked: Vec::new(),
        }));
        let heard = Arc::clone(&told);
        let http = Http::start(move |request| lock(&heard).answer(request))?;
        Ok(Self { http, told })
    }

    /// Where answers are judged.
    pub fn siteverify_url(&self) -> String {
        format!("http://{}/siteverify", self.http.address)
    }

    /// The script that shows a captcha: Turnstile's and hCaptcha's interface, solved by a button.
    pub fn script_url(&self) -> String {
        format!("http://{}/api.js", self.http.address)
    }

    /// Somebody has solved a captcha: the answer.
    pub fn solved(&self, it: Solved) -> String {
        lock(&self.told).give(it)
    }

    /// Answers so from now on.
    pub fn say(&self, says: Says) {
        lock(&self.told).says = says;
    }

    /// What it was asked so far, each time as the form's fields.
    pub fn asked(&self) -> Vec<Vec<(String, String)>> {
        lock(&self.told).asked.clone()
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
    fn give(&mut self, it: Solved) -> String {
        let answer = format!("answer-{}", self.given.len());
        self.given.insert(answer.clone(), it);
        answer
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let mut words = request.head.split_whitespace();
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        match (method, path) {
            ("POST", "/siteverify") => self.judge(&fields(&request.body)),
            ("GET", "/api.js") => {
                let (kind, more) = ("text/javascript", String::new());
                Reply::Whole { status: 200, kind, more, body: SCRIPT.into() }
            }
            // What the script does when its button is pressed.
            ("POST", "/solve") => {
                let (asked, more) =
                    (fields(query.as_bytes()), "Access-Control-Allow-Origin: *\r\n".to_owned());
                let solved = Solved {
                    hostname: field(&asked, "hostname"),
                    action: field(&asked, "action"),
                    cdata: field(&asked, "cdata"),
                };
                Reply::Whole { status: 200, kind: "text/plain", more, body: self.give(solved).into() }
            }
            _ => Reply::json(404, "{}"),
        }
    }

    fn judge(&mut self, asked: &[(String, String)]) -> Reply {
        self.asked.push(asked.to_vec());
        match &self.says {
            Says::Verdicts => Reply::json(200, self.verdict(asked).to_string()),
            Says::Text(status, text) => Reply::json(*status, text.as_str()),
            Says::Redirect(to) => Reply::redirect(to),
            Says::Silence => Reply::Silence,
            Says::End => Reply::End,
        }
    }

    fn verdict(&mut self, asked: &[(String, String)]) -> Value {
        let refused = |code: &str| json!({"success": false, "error-codes": [code]});
        if field(asked, "secret") != self.secret {
            return refused("invalid-input-secret");
        }
        let answer = field(asked, "response");
        let Some(it) = self.given.get(&answer) else { return refused("invalid-input-response") };
        if !self.judged.insert(answer) {
            return refused("timeout-or-duplicate");
        }
        let Solved { hostname, action, cdata } = it;
        json!({
            "success": true, "challenge_ts": "2026-11-27T08:00:00.000Z", "error-codes": [],
            "hostname": hostname, "action": action, "cdata": cdata,
        })
    }
}

/// The fields of a form, decoded.
fn fields(form: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(form);
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn field(fields: &[(String, String)], name: &str) -> String {
    fields.iter().find(|(it, _)| it == name).map(|(_, value)| value.clone()).unwrap_or_default()
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().replace('+', " ").into_bytes();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(digits, 16));
        bytes.extend(rest.replace('+', " ").bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Shows a button, and calls back with an answer when it is pressed.
const SCRIPT: &str = r#""use strict";
(() => {
const here = new URL(document.currentScript.src);
const widget = {
	render(place, { sitekey, action = "", cData = "", callback, "error-callback": failed }) {
		const button = document.createElement("button");
		button.textContent = "I am a person";
		button.addEventListener("click", async () => {
			const asked = new URLSearchParams({ sitekey, action, cdata: cData, hostname: location.hostname });
			try { callback(await (await fetch(here.origin + "/solve?" + asked, { method: "POST" })).text()); } catch { failed(); }
		});
		place.append(button);
		return "0";
	},
	remove() { },
};
window.turnstile = window.hcaptcha = widget;
window[here.searchParams.get("onload")]?.();
})();
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_it_was_written() {
        assert_eq!(
            fields(b"secret=a%2Bb+c&response=%C3%A9&empty="),
            [("secret", "a+b c"), ("response", "é"), ("empty", "")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
