//! The watchdog of the service manager: a daemon that does not respond is restarted.
//!
//! Invariant: a message is sent only if every reactor has run a job within the interval and the
//! thread of the API runs, which sends it.

use std::sync::Arc;
use std::time::Duration;

use reactor::Remote;

use crate::notify::notify;
use crate::reactors::Reactors;

/// Sends messages at half of the interval that the service manager expects, if it does.
pub(crate) async fn run(reactors: Arc<Reactors>) {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(interval) = interval(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id())
    else {
        return;
    };
    tracing::info!(interval_seconds = interval.as_secs_f64(), "the service manager's watchdog is active");
    loop {
        if all_respond(reactors.all(), interval).await {
            notify("WATCHDOG=1");
        } else {
            tracing::error!("a reactor does not respond: no message to the service manager's watchdog");
        }
        tokio::time::sleep(interval / 2).await;
    }
}

/// Returns the interval of the variables of sd_watchdog_enabled(3), for the process with this
/// number.
fn interval(micros: Option<String>, process: Option<String>, own: u32) -> Option<Duration> {
    let is_other = process.is_some_and(|process| process.parse() != Ok(own));
    let interval = Duration::from_micros(micros?.parse().ok()?);
    (!is_other && !interval.is_zero()).then_some(interval)
}

/// Returns true if every reactor runs a job within `limit`.
async fn all_respond(reactors: &[Remote], limit: Duration) -> bool {
    let respond = async {
        for reactor in reactors {
            if reactor.call(|| std::future::ready(())).await.is_err() {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(limit, respond).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use reactor::Backend;

    use super::*;
    use crate::reactors::Settings;

    #[test]
    fn the_interval_is_that_of_this_process() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(interval(text("2000000"), None, 7), Some(Duration::from_secs(2)));
        assert_eq!(interval(text("2000000"), text("7"), 7), Some(Duration::from_secs(2)));
        assert_eq!(interval(text("2000000"), text("8"), 7), None);
        assert_eq!(interval(text("0"), None, 7), None);
        assert_eq!(interval(text("x"), None, 7), None);
        assert_eq!(interval(None, None, 7), None);
    }

    #[tokio::test]
    async fn a_blocked_reactor_is_found() {
        let settings = Settings { cores: vec![None, None], poll: Duration::ZERO, backend: Backend::Threads };
        let reactors = Reactors::start(&settings).unwrap();
        assert!(all_respond(reactors.all(), Duration::from_secs(60)).await);
        let (release, blocked) = mpsc::channel::<()>();
        reactors.all()[1].post(move || assert!(blocked.recv().is_err())).unwrap();
        assert!(!all_respond(reactors.all(), Duration::from_millis(20)).await);
        drop(release);
        assert!(all_respond(reactors.all(), Duration::from_secs(60)).await);
        reactors.stop();
    }
}
