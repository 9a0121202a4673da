//! The page that an agent serves to its operator, if there is a token: the whole network as this agent sees it.

use std::net::TcpListener;

use mile_lab::error::LabError;
use mile_lab::serve::{GuardedPage, Look};
use mile_lab::spec::AgentSettings;
use mile_net::status::Status;

use super::{Layout, token, view};

/// Serves the page, if the settings say so. It ends when what is returned is dropped.
pub(crate) fn serve(
    settings: &AgentSettings,
    layout: Layout,
    status: impl Fn() -> Status + Send + Sync + 'static,
) -> Result<Option<GuardedPage>, LabError> {
    let Some(path) = &settings.page_token else { return Ok(None) };
    let token = token::read(path)?;
    let at = settings.page.unwrap_or(AgentSettings::PAGE);
    let listener = TcpListener::bind(at).map_err(|error| {
        let problem = format!("cannot serve the page on {at}: {error}; choose another address");
        LabError::config("agent.page", problem)
    })?;
    let look = move || {
        let own = status();
        let agent = own.agent;
        let view = view(&[(own, false)], Some(&layout));
        let title = format!("{}, seen by agent {agent}", view.run);
        Look { status: format!("live, seen by agent {agent}"), html: view.html(), title }
    };
    let page = GuardedPage::start(listener, token, look)?;
    tracing::info!(
        "the page of the network is on {}; mile watch FOLDER --page prints its address",
        page.address()
    );
    Ok(Some(page))
}
