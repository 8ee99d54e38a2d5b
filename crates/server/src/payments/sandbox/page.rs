//! The sandbox's page: whole in itself, without a script, in English, French and Chinese.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_LANGUAGE;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Bill, Choice};

pub(crate) const STYLE: &str = include_str!("../../../../../web/sandbox.css");

/// A language of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    English,
    French,
    Chinese,
}

/// The words of one language.
struct Words {
    title: &'static str,
    warning: &'static str,
    order: &'static str,
    amount: &'static str,
    ask: &'static str,
    sent: &'static str,
    crowded: &'static str,
    back: &'static str,
    lost: &'static str,
    lost_why: &'static str,
    /// Each button of [`Choice::ALL`] with what it does.
    choices: [(&'static str, &'static str); 6],
}

impl Language {
    const ALL: [Self; 3] = [Self::English, Self::French, Self::Chinese];

    /// What its page's address says in `lang`.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::French => "fr",
            Self::Chinese => "zh",
        }
    }

    const fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::French => "fr",
            Self::Chinese => "zh-Hans",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::French => "Français",
            Self::Chinese => "中文",
        }
    }

    const fn words(self) -> &'static Words {
        match self {
            Self::English => &ENGLISH,
            Self::French => &FRENCH,
            Self::Chinese => &CHINESE,
        }
    }

    /// The one that was asked for, or else the first that the browser names and we speak.
    pub(crate) fn of(asked: Option<&str>, headers: &HeaderMap) -> Self {
        let named = headers.get(ACCEPT_LANGUAGE).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let known = |tag: &str| {
            let code = tag.trim().split(['-', ';']).next().unwrap_or_default();
            Self::ALL.into_iter().find(|it| it.code().eq_ignore_ascii_case(code))
        };
        asked.and_then(known).or_else(|| named.split(',').find_map(known)).unwrap_or(Self::English)
    }
}

/// What was done on the page a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Chosen(Choice),
    Crowded,
}

/// The page of a bill.
pub(crate) fn page(bill: &Bill, language: Language, done: Option<Done>) -> String {
    let words = language.words();
    let back = html! { p { a href=(bill.return_url) { (words.back) } } };
    let body = html! {
        h1 { (words.title) }
        p.warning { (words.warning) }
        @match done {
            Some(Done::Chosen(choice)) => p.done role="status" { (words.sent) " " b { (label(words, choice)) } },
            Some(Done::Crowded) => p.done role="status" { (words.crowded) },
            None => {},
        }
        // Once something was chosen, the way back is the next step.
        @if done.is_some() { (back) }
        dl {
            dt { (words.amount) } dd.amount { (bill.total.decimal()) " " (bill.total.currency.as_str()) }
            dt { (bill.title) } dd { (words.order) " " code { (bill.order) } }
        }
        h2 { (words.ask) }
        ul {
            @for (choice, (name, meaning)) in Choice::ALL.into_iter().zip(words.choices) {
                li {
                    form method="post" action={ "?do=" (choice.as_str()) "&lang=" (language.code()) } {
                        button.main[choice == Choice::Pay] type="submit" { (name) }
                    }
                    p { (meaning) }
                }
            }
        }
        @if done.is_none() { (back) }
    };
    whole(language, words.title, &body)
}

/// The page of an address that we did not write.
pub(crate) fn lost(language: Language) -> String {
    let words = language.words();
    whole(language, words.lost, &html! { h1 { (words.lost) } p { (words.lost_why) } })
}

fn label(words: &Words, choice: Choice) -> &'static str {
    let place = Choice::ALL.iter().position(|it| *it == choice).unwrap_or_default();
    words.choices[place].0
}

fn whole(language: Language, title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang=(language.tag()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                nav {
                    @for other in Language::ALL {
                        a href={ "?lang=" (other.code()) } lang=(other.tag())
                            aria-current=[(other == language).then_some("true")] { (other.name()) }
                    }
                }
                main { (body) }
            }
        }
    };
    page.into_string()
}

const ENGLISH: Words = Words {
    title: "Sandbox payment",
    warning: "This is a sandbox: no money moves. Choose what becomes of the payment.",
    order: "Order",
    amount: "To pay",
    ask: "What shall happen?",
    sent: "The shop is being told:",
    crowded: "Too much waits to be told. Try again shortly.",
    back: "Back to the shop",
    lost: "There is no payment at this address",
    lost_why: "Go back to the shop and begin to pay again.",
    choices: [
        ("Pay", "The payment succeeds."),
        ("Fail", "The payment fails; you may try again."),
        ("Pay late", "The payment succeeds, and the shop hears of it 30 seconds later."),
        ("Pay, told three times", "The same event arrives twice, and another event of the same payment."),
        ("Pay too little", "The payment is 0.01 short."),
        ("Contradict", "The payment succeeds, and then it is said to have failed."),
    ],
};

const FRENCH: Words = Words {
    title: "Paiement d’essai",
    warning: "Ceci est un bac à sable : aucun argent ne circule. Choisissez ce que devient le paiement.",
    order: "Commande",
    amount: "À payer",
    ask: "Que doit-il se passer ?",
    sent: "La boutique en est informée :",
    crowded: "Trop de messages attendent. Réessayez dans un instant.",
    back: "Retour à la boutique",
    lost: "Il n’y a pas de paiement à cette adresse",
    lost_why: "Retournez à la boutique et recommencez le paiement.",
    choices: [
        ("Payer", "Le paiement réussit."),
        ("Échouer", "Le paiement échoue ; vous pouvez réessayer."),
        ("Payer en retard", "Le paiement réussit, et la boutique l’apprend 30 secondes plus tard."),
        ("Payer, annoncé trois fois", "Le même événement arrive deux fois, puis un autre du même paiement."),
        ("Payer trop peu", "Il manque 0,01 au paiement."),
        ("Contredire", "Le paiement réussit, puis il est dit avoir échoué."),
    ],
};

const CHINESE: Words = Words {
    title: "沙盒付款",
    warning: "这是沙盒环境，不会产生真实扣款。请选择付款结果。",
    order: "订单",
    amount: "应付金额",
    ask: "希望发生什么？",
    sent: "正在通知商家：",
    crowded: "等待发送的通知过多，请稍后再试。",
    back: "返回商家",
    lost: "此地址没有付款",
    lost_why: "请返回商家重新付款。",
    choices: [
        ("付款", "付款成功。"),
        ("失败", "付款失败，可以重试。"),
        ("延迟付款", "付款成功，商家 30 秒后才收到通知。"),
        ("付款，通知三次", "同一事件送达两次，并有同一付款的另一事件。"),
        ("少付", "付款少 0.01。"),
        ("矛盾", "付款成功，随后又被告知失败。"),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    fn language(asked: Option<&str>, accepted: &str) -> Language {
        let headers = HeaderMap::from_iter([(ACCEPT_LANGUAGE, accepted.parse().unwrap())]);
        Language::of(asked, &headers)
    }

    #[test]
    fn the_language_is_the_one_asked_for_or_the_browsers_first_that_we_speak() {
        assert_eq!(language(None, "de, fr-CA;q=0.9, en;q=0.8"), Language::French);
        assert_eq!(language(None, "ZH-TW"), Language::Chinese);
        assert_eq!(language(Some("en"), "fr"), Language::English);
        assert_eq!(language(Some("xx"), "fr"), Language::French);
        assert_eq!(language(None, ""), Language::English);
    }

    #[test]
    fn what_the_shop_wrote_cannot_become_markup() {
        let bill = Bill {
            attempt: "a".to_owned(),
            order: "o".to_owned(),
            total: doorbuster_engine::order::Money { minor: 1_990, currency: "EUR".parse().unwrap() },
            title: "<script>alert(1)</script>".to_owned(),
            return_url: "https://shop.example/?a=\"><b>".to_owned(),
        };
        let page = page(&bill, Language::English, None);
        assert!(
            page.contains("19.90 EUR") && !page.contains("<script") && !page.contains("\"><b>"),
            "{page}"
        );
    }
}
