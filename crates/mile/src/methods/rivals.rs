//! The entries of methods that compete with mile: ADMM with local steps, primal-dual steps on random graphs, compressed
//! tracking, and what language models are trained with.

use super::entry::{Entry, Parameter};
use super::row::{
    CLIP, COMPRESSION, LOCAL_STEPS, MOMENTUM, NESTEROV, OPTIMIZER, Row, SHARE_MOMENTS, USUAL_MOMENTUM,
    built_in, checked_compression,
};
use super::{DiLoCo, Dinno, Fspda, Gasloc, LtAdmm, Motef, NoLoCo, parts};

const OUTER_EXPECTED: &str = "a table such as { momentum = 0.5, step_size = 0.7 }";

pub(super) const LT_ADMM: Entry = built_in(Row {
    name: "lt-admm",
    title: "LT-ADMM",
    reference: "Ren, Bastianello, Johansson, Parisini 2025",
    exact: true,
    parameters: &[
        LOCAL_STEPS,
        Parameter::number(
            "rho",
            "a positive number",
            "1/(local_steps w), w the largest sum of an agent's weights",
        ),
    ],
    note: "rho is the paper's beta rho; needs rho local_steps (1 - l) < 8/3 for the smallest eigenvalue l of W",
    build: &|p, network, _| {
        let rho = p.number("rho").unwrap_or(LtAdmm::usual_rho(p.tau(), network));
        Ok(Box::new(LtAdmm::new(p.tau(), rho)?.with_own_steps(p.own_steps())?))
    },
});

pub(super) const DINNO: Entry = built_in(Row {
    name: "dinno",
    title: "DiNNO",
    reference: "Yu, Vincent, Schwager 2022",
    exact: true,
    parameters: &[
        LOCAL_STEPS,
        Parameter::number(
            "rho",
            "a positive number",
            "min(1/2, 1/local_steps)/w, w the largest sum of an agent's weights; with adamw or muon 0.1",
        ),
        OPTIMIZER,
        CLIP,
        SHARE_MOMENTS,
    ],
    note: "rho is in units of 1/step_size; with adamw, amsgrad or muon it is a number in units of gradients by x",
    build: &|p, network, _| {
        let usual = p.is_preconditioned().then_some(0.1);
        let method = Dinno::new(p.tau(), p.number("rho").or(usual), network)?.with_local(&p.local)?;
        Ok(Box::new(method.with_own_steps(p.own_steps())?))
    },
});

pub(super) const FSPDA: Entry = built_in(Row {
    name: "fspda",
    title: "FSPDA",
    reference: "Yau, Liu, Wai 2024, FSPDA-SA",
    exact: true,
    parameters: &[
        Parameter::part("gamma", "a number in (0, 1]", "1"),
        Parameter::number("beta", "a number in (0, 1]", "0.5; where edges change 0.1"),
    ],
    note: "for edges that drop or change; on a fixed graph the defaults are EXTRA. beta is the paper's eta beta. It does not send random coordinates",
    build: &|p, network, _| {
        let beta = if network.varies() { 0.1 } else { 0.5 };
        let (gamma, beta) = (p.gamma.unwrap_or(1.0), p.number("beta").unwrap_or(beta));
        Ok(Box::new(Fspda::new(gamma, beta)?))
    },
});

pub(super) const MOTEF: Entry = built_in(Row {
    name: "motef",
    title: "MoTEF",
    reference: "Islamov, Gao, Stich 2024",
    exact: true,
    parameters: &[
        USUAL_MOMENTUM,
        COMPRESSION,
        Parameter::part("gamma", "a number in (0, 1], with compression", "1; with top_k that share"),
    ],
    note: "momentum is the paper's 1 - lambda: a constant gradient moves a model as far as without. With compression it waits twice in a round",
    build: &|p, network, _| {
        let mut p = checked_compression("motef", p, network)?;
        p.weights_of_compression(false);
        let momentum = p.usual_momentum("motef")?;
        Ok(Box::new(Motef::new(momentum, p.gamma.unwrap_or(1.0), p.compression)?))
    },
});

pub(super) const DILOCO: Entry = built_in(Row {
    name: "diloco",
    title: "DiLoCo",
    reference: "Douillard et al. 2023",
    exact: false,
    parameters: &[
        LOCAL_STEPS,
        Parameter::part("outer", OUTER_EXPECTED, "{ momentum = 0.9, step_size = 0.7 }"),
        MOMENTUM,
        NESTEROV,
        OPTIMIZER,
        CLIP,
        SHARE_MOMENTS,
    ],
    note: "on the complete graph, where one exchange gives the server's average; does not reach a stationary point when the f_i differ",
    build: &|p, _, _| {
        let method = DiLoCo::new(p.tau(), p.outer.unwrap_or(DiLoCo::USUAL))?;
        let method = method.with_local(p.checked_momentum("diloco")?, &p.local)?;
        Ok(Box::new(method.with_own_steps(p.own_steps())?))
    },
});

pub(super) const NOLOCO: Entry = built_in(Row {
    name: "noloco",
    title: "NoLoCo",
    reference: "Kolehmainen et al. 2025",
    exact: false,
    parameters: &[
        LOCAL_STEPS,
        Parameter::part("outer", OUTER_EXPECTED, "{ momentum = 0.5, step_size = 0.7 }"),
        MOMENTUM,
        NESTEROV,
        OPTIMIZER,
        CLIP,
        SHARE_MOMENTS,
    ],
    note: "for time_varying = \"random-matching\": the ends of an edge take their mean; otherwise agents mix with W. One vector is sent where the authors' code sends two, with the same result. Does not reach a stationary point when the f_i differ",
    build: &|p, network, _| {
        let method = NoLoCo::new(p.tau(), p.outer.unwrap_or(NoLoCo::USUAL), network)?;
        let method = method.with_local(p.checked_momentum("noloco")?, &p.local)?;
        Ok(Box::new(method.with_own_steps(p.own_steps())?))
    },
});

pub(super) const GASLOC: Entry = built_in(Row {
    name: "gasloc",
    title: "GASLoC",
    reference: "Cagnasso, Belilovsky, Oyallon 2026",
    exact: false,
    parameters: &[
        LOCAL_STEPS,
        Parameter::part("outer", OUTER_EXPECTED, "{ momentum = 0.5, step_size = 0.7 }"),
        Parameter::part("gamma", "a positive number", "1; in pairs such that they take their mean"),
        MOMENTUM,
        NESTEROV,
        OPTIMIZER,
        CLIP,
        SHARE_MOMENTS,
    ],
    note: "does not reach a stationary point when the f_i differ; the default weights are ours",
    build: &|p, network, _| {
        let gamma = p.gamma.unwrap_or(parts::pair_weight(network));
        let method = Gasloc::new(p.tau(), p.outer.unwrap_or(Gasloc::USUAL), gamma)?;
        let method = method.with_local(p.checked_momentum("gasloc")?, &p.local)?;
        Ok(Box::new(method.with_own_steps(p.own_steps())?))
    },
});
