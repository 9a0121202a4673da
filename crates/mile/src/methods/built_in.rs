//! The list of the built-in methods: an entry for each.

use std::borrow::Cow;

use super::entry::{Build, Builder, Entry, Parameter, ParameterKind};
use super::parameters::Parameters;
use super::{
    D2, DecFedTrack, DecentLaM, Diging, Dsgd, Ed, Edm, Extra, GradientTracking, Gta, KGt, Led, LocalDsgd,
    MgSkip, Mile, MomentumTracking, Nids, PeriodicalGt, ProxNids, ProxSkip, PushPull, QgDsgdm, Scaffold,
    Variant, parts,
};
use crate::method::{Checker, InvalidParameter};
use crate::network::Network;
use crate::schedule::Weight;

/// An entry in the form used below.
struct Row {
    name: &'static str,
    title: &'static str,
    reference: &'static str,
    exact: bool,
    parameters: &'static [Parameter],
    note: &'static str,
    build: &'static Build,
}

const fn built_in(row: Row) -> Entry {
    Entry {
        name: Cow::Borrowed(row.name),
        title: Cow::Borrowed(row.title),
        reference: row.reference,
        exact: row.exact,
        parameters: row.parameters,
        note: row.note,
        facts: Vec::new(),
        build: Builder::BuiltIn(row.build),
    }
}

const LOCAL_STEPS: Parameter = Parameter::part("local_steps", "a whole number of at least 1", "10");
const ETA_S: Parameter = Parameter::number("eta_s", "a positive number", "1");
const COMMUNICATIONS: Parameter = Parameter::whole("communications", "1");
const MOMENTUM: Parameter = Parameter::part("momentum", "a number in [0, 1)", "0");
const USUAL_MOMENTUM: Parameter = Parameter::part("momentum", "a number in [0, 1)", "0.9");
const NESTEROV: Parameter = Parameter::part("nesterov", "true or false", "false");
const COMPRESSION: Parameter =
    Parameter::part("compression", "\"none\", \"8-bit\" or { top_k = a share in (0, 1) }", "\"none\"");
const OUTER: Parameter =
    Parameter::part("outer", "a table such as { momentum = 0.5, step_size = 0.7 }", "none");
const PROBABILITY: Parameter = Parameter::number("probability", "a number in (0, 1]", "1/local_steps");

/// Parameters whose compression is possible on the network.
fn checked_compression(
    method: &str,
    parameters: &Parameters,
    network: &Network,
) -> Result<Parameters, InvalidParameter> {
    if let Some(by) = parameters.compression {
        parts::check_compression(method, by, network)?;
    }
    Ok(parameters.clone())
}

/// Every built-in method.
pub static ALL: &[Entry] = &[
    built_in(Row {
        name: "mile",
        title: "MILE",
        reference: "Liu, Wang, Wang 2025, Algorithm 1",
        exact: true,
        parameters: &[
            LOCAL_STEPS,
            Parameter::part(
                "xi",
                "a number in (0, 1], \"paper\", \"auto\", \"adaptive\", { adaptive } or { from, to, rounds }",
                "\"paper\": 0.9 * 2/(local_steps + 3); with top_k gamma/(10 local_steps)",
            ),
            Parameter::part(
                "gamma",
                "a number in (0, 1], or \"auto\"",
                "xi, the paper's method; with an adaptive xi 1, or 1.5/(1 - l) if that is less; with top_k that share",
            ),
            MOMENTUM,
            NESTEROV,
            OUTER,
            COMPRESSION,
        ],
        note: "a gamma different from xi decouples mixing from correction, and momentum needs it: our extensions of the paper, as are an adaptive xi, outer momentum and compression",
        build: &|p, network, _| {
            let mut p = checked_compression("mile", p, network)?;
            p.weights_of_compression(true);
            let (xi, gamma) = (p.xi.unwrap_or(Mile::paper_xi(p.tau()).into()), p.gamma);
            let found = matches!(xi, Weight::Adaptive(_)) && gamma.is_none();
            let gamma = if found { Some(Mile::adaptive_gamma(network.extremes().lambda_n)) } else { gamma };
            let method = Mile::with_weights(p.tau(), xi, gamma)?.with_compression(p.compression)?;
            Ok(Box::new(method.with_momentum(p.checked_momentum("mile")?).with_outer(p.outer)?))
        },
    }),
    built_in(Row {
        name: "led",
        title: "LED",
        reference: "Alghunaim 2024",
        exact: true,
        parameters: &[
            LOCAL_STEPS,
            Parameter::number("beta", "a number in (0, 1]", "1/local_steps, less with momentum"),
            MOMENTUM,
            NESTEROV,
            OUTER,
        ],
        note: "needs a smallest eigenvalue of W above -1/3: use mixing = \"lazy-metropolis\"; both kinds of momentum are our extensions",
        build: &|p, _, _| {
            let momentum = p.checked_momentum("led")?;
            Ok(Box::new(Led::with_momentum(p.tau(), p.number("beta"), momentum, p.outer)?))
        },
    }),
    built_in(Row {
        name: "k-gt",
        title: "K-GT",
        reference: "Liu, Lin, Koloskova, Stich 2023",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S, MOMENTUM, NESTEROV, OUTER],
        note: "both kinds of momentum are our extensions; outer.step_size takes the place of eta_s",
        build: &|p, _, _| {
            if let (Some(eta_s), Some(_)) = (p.number("eta_s"), p.outer) {
                let expected = "none with outer; use outer.step_size";
                return Err(Checker("k-gt").refuse("eta_s", eta_s, expected));
            }
            let method = KGt::new(p.tau(), p.number("eta_s").unwrap_or(1.0))?.with_outer(p.outer)?;
            Ok(Box::new(method.with_momentum(p.checked_momentum("k-gt")?)))
        },
    }),
    built_in(Row {
        name: "periodical-gt",
        title: "Periodical-GT",
        reference: "Liu, Lin, Koloskova, Stich 2023",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "our interpretation: no public code",
        build: &|p, _, _| Ok(Box::new(PeriodicalGt::new(p.tau())?)),
    }),
    built_in(Row {
        name: "dec-fedtrack",
        title: "Dec-FedTrack",
        reference: "Ghiasvand et al. 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S],
        note: "for minimisation, where it is K-GT",
        build: &|p, _, _| Ok(Box::new(DecFedTrack::new(p.tau(), p.number("eta_s").unwrap_or(1.0))?)),
    }),
    built_in(Row {
        name: "gta-1",
        title: "GTA-1",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "",
        build: &|p, _, _| Ok(Box::new(Gta::one(p.tau(), p.whole("communications").unwrap_or(1))?)),
    }),
    built_in(Row {
        name: "gta-2",
        title: "GTA-2",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "",
        build: &|p, _, _| Ok(Box::new(Gta::two(p.tau(), p.whole("communications").unwrap_or(1))?)),
    }),
    built_in(Row {
        name: "gta-3",
        title: "GTA-3",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "two exchanges per communication round, one after the other",
        build: &|p, _, _| Ok(Box::new(Gta::three(p.tau(), p.whole("communications").unwrap_or(1))?)),
    }),
    built_in(Row {
        name: "diging",
        title: "DIGing",
        reference: "Nedic, Olshevsky, Shi 2017",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "",
        build: &|p, _, _| Ok(Box::new(Diging::new(p.tau())?)),
    }),
    built_in(Row {
        name: "push-pull",
        title: "AB/push-pull",
        reference: "Nedic, Nguyen, Nguyen 2022",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "our interpretation of what the paper calls PPADCO; A = B = W",
        build: &|p, _, _| Ok(Box::new(PushPull::new(p.tau())?)),
    }),
    built_in(Row {
        name: "extra",
        title: "EXTRA",
        reference: "Shi, Ling, Wu, Yin 2015",
        exact: true,
        parameters: &[],
        note: "with problem.l1: PG-EXTRA (Shi, Ling, Wu, Yin 2015)",
        build: &|_, _, _| Ok(Box::new(Extra)),
    }),
    built_in(Row {
        name: "ed",
        title: "ED",
        reference: "Yuan, Ying, Zhao, Sayed 2019",
        exact: true,
        parameters: &[],
        note: "with problem.l1: Prox-ED (Alghunaim, Ryu, Yuan, Sayed 2021)",
        build: &|_, _, _| Ok(Box::new(Ed)),
    }),
    built_in(Row {
        name: "nids",
        title: "NIDS",
        reference: "Li, Shi, Yan 2019",
        exact: true,
        parameters: &[],
        note: "with problem.l1: the paper's proximal form, which stores a vector more",
        build: &|p, _, _| Ok(if p.penalty { Box::new(ProxNids) } else { Box::new(Nids) }),
    }),
    built_in(Row {
        name: "d2",
        title: "D2",
        reference: "Tang, Lian, Yan, Zhang, Liu 2018",
        exact: true,
        parameters: &[],
        note: "needs a smallest eigenvalue of W above -1/3: use mixing = \"lazy-metropolis\"",
        build: &|_, _, _| Ok(Box::new(D2)),
    }),
    built_in(Row {
        name: "proxskip",
        title: "ProxSkip",
        reference: "Mishchenko et al. 2022; Guo et al. 2023",
        exact: true,
        parameters: &[
            LOCAL_STEPS,
            PROBABILITY,
            Parameter::number("beta", "a number in (0, 1]", "probability"),
            Parameter::number("chi", "a number from 1", "1"),
        ],
        note: "communicates at random steps, the same for all agents",
        build: &|p, _, seed| {
            Checker("proxskip").at_least_one("local_steps", p.tau())?;
            Ok(Box::new(ProxSkip::new(
                seed,
                p.probability(),
                p.number("beta"),
                p.number("chi").unwrap_or(1.0),
            )?))
        },
    }),
    built_in(Row {
        name: "mg-skip",
        title: "MG-Skip",
        reference: "Guo, Wang, Shi, Cao 2023",
        exact: true,
        parameters: &[LOCAL_STEPS, PROBABILITY, Parameter::whole("gossip", "1/sqrt(1 - l), rounded up")],
        note: "a reconstruction: only the abstract was available",
        build: &|p, network, seed| {
            Checker("mg-skip").at_least_one("local_steps", p.tau())?;
            Ok(Box::new(MgSkip::new(seed, p.probability(), p.whole("gossip"), network)?))
        },
    }),
    built_in(Row {
        name: "local-dsgd",
        title: "local DSGD",
        reference: "DFedAvg: Sun, Li, Wang 2022",
        exact: false,
        parameters: &[
            LOCAL_STEPS,
            MOMENTUM,
            NESTEROV,
            OUTER,
            COMPRESSION,
            Parameter::part("gamma", "a number in (0, 1], with compression", "1; with top_k that share"),
        ],
        note: "does not reach a stationary point when the f_i differ, with problem.l1 as without; with compression it is CHOCO-SGD with local steps; with momentum it is DFedAvgM, of which each round of the paper starts with no momentum and here it is kept; with outer momentum on the complete graph it is DiLoCo with plain local steps",
        build: &|p, network, _| {
            let mut p = checked_compression("local-dsgd", p, network)?;
            p.weights_of_compression(false);
            let method = LocalDsgd::new(p.tau())?.with_momentum(p.checked_momentum("local-dsgd")?);
            let method = method.with_outer(p.outer)?;
            Ok(Box::new(match p.compression {
                Some(by) => method.with_compression(by, p.gamma.unwrap_or(1.0))?,
                None => method,
            }))
        },
    }),
    built_in(Row {
        name: "dsgd",
        title: "DSGD",
        reference: "Lian et al. 2017",
        exact: false,
        parameters: &[Parameter {
            name: "variant",
            expected: "\"atc\" or \"cta\"",
            default: "\"atc\"",
            kind: ParameterKind::Word(&["atc", "cta"]),
        }],
        note: "does not reach a stationary point when the f_i differ, with problem.l1 as without",
        build: &|p, _, _| {
            Ok(Box::new(Dsgd { variant: p.word("variant").and_then(Variant::named).unwrap_or_default() }))
        },
    }),
    built_in(Row {
        name: "gradient-tracking",
        title: "gradient tracking",
        reference: "Xu, Zhu, Soh, Xie 2015",
        exact: true,
        parameters: &[],
        note: "adapt then combine",
        build: &|_, _, _| Ok(Box::new(GradientTracking)),
    }),
    built_in(Row {
        name: "scaffold",
        title: "SCAFFOLD",
        reference: "Karimireddy et al. 2020, option II",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S],
        note: "on the complete graph, where one exchange gives the server's average",
        build: &|p, _, _| Ok(Box::new(Scaffold::new(p.tau(), p.number("eta_s").unwrap_or(1.0))?)),
    }),
    built_in(Row {
        name: "momentum-tracking",
        title: "Momentum Tracking",
        reference: "Takezawa, Bao, Niwa, Sato, Yamada 2022",
        exact: true,
        parameters: &[USUAL_MOMENTUM],
        note: "starts from c = 0, without the average over all agents of the authors' code",
        build: &|p, _, _| Ok(Box::new(MomentumTracking::new(p.usual_momentum("momentum-tracking")?))),
    }),
    built_in(Row {
        name: "edm",
        title: "EDM",
        reference: "Hu, Chen, Liu, Mao 2025",
        exact: true,
        parameters: &[USUAL_MOMENTUM],
        note: "our reading of the paper, with the matrix (I + W)/2 of ED",
        build: &|p, _, _| Ok(Box::new(Edm::new(p.usual_momentum("edm")?))),
    }),
    built_in(Row {
        name: "qg-dsgdm",
        title: "QG-DSGDm",
        reference: "Lin, Karimireddy, Stich, Jaggi 2021",
        exact: false,
        parameters: &[USUAL_MOMENTUM, NESTEROV],
        note: "does not reach a stationary point when the f_i differ: its fixed points are those of dsgd",
        build: &|p, _, _| Ok(Box::new(QgDsgdm::new(p.usual_momentum("qg-dsgdm")?))),
    }),
    built_in(Row {
        name: "decentlam",
        title: "DecentLaM",
        reference: "Yuan et al. 2021",
        exact: false,
        parameters: &[USUAL_MOMENTUM],
        note: "does not reach a stationary point when the f_i differ: its fixed points are those of dsgd",
        build: &|p, _, _| Ok(Box::new(DecentLaM::new(p.usual_momentum("decentlam")?))),
    }),
];
