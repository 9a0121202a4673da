//! The list of the built-in methods: an entry for each.

use super::entry::{Entry, Parameter, ParameterKind};
use super::rivals;
use super::row::{
    CLIP, COMMUNICATIONS, COMPRESSION, CORRECTION, ETA_S, EXCHANGE, EXPECTED_STEPS, LOCAL_STEPS, MOMENTUM,
    NESTEROV, OPTIMIZER, OUTER, PROBABILITY, PROTECTION, Row, SHARE_MOMENTS, USUAL_MOMENTUM, built_in,
    checked_compression,
};
use super::{
    D2, DecFedTrack, DecentLaM, Diging, Dsgd, Ed, Edm, Extra, GradientTracking, Gta, KGt, Led, LocalDsgd,
    MgSkip, Mile, MileInPairs, MomentumTracking, Nids, PeriodicalGt, ProxNids, ProxSkip, PushPull, QgDsgdm,
    Scaffold, Variant,
};
use crate::method::Checker;
use crate::schedule::Weight;

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
                "\"paper\": 0.9 * 2/(local_steps + 3); with adamw or muon 0.4/local_steps; in pairs 0.2/local_steps; with top_k gamma/(10 local_steps)",
            ),
            Parameter::part(
                "gamma",
                "a number in (0, 1], or \"auto\"",
                "xi, the paper's method; with an adaptive xi, adamw or muon 1, or 1.5/(1 - l) if that is less; in pairs 1; with top_k that share",
            ),
            MOMENTUM,
            NESTEROV,
            OPTIMIZER,
            CORRECTION,
            CLIP,
            SHARE_MOMENTS,
            OUTER,
            COMPRESSION,
            EXCHANGE,
        ],
        note: "a gamma different from xi decouples mixing from correction, and momentum needs it: our extensions of the paper, as are an adaptive xi, outer momentum, compression and exchanges in pairs",
        build: &|p, network, _| {
            if p.pairs {
                return Ok(Box::new(MileInPairs::of(p)?));
            }
            let mut p = checked_compression("mile", p, network)?;
            p.weights_of_compression(true);
            if p.is_preconditioned() {
                p.weights_of_optimizer(network.extremes().lambda_n);
            }
            let (xi, gamma) = (p.xi.unwrap_or(Mile::paper_xi(p.tau()).into()), p.gamma);
            let found = matches!(xi, Weight::Adaptive(_)) && gamma.is_none();
            let gamma = if found { Some(Mile::adaptive_gamma(network.extremes().lambda_n)) } else { gamma };
            let method = Mile::with_weights(p.tau(), xi, gamma)?.with_compression(p.compression)?;
            let method = method.with_robust(p.robust)?;
            let method = method.with_local(p.checked_momentum("mile")?, &p.local)?.with_outer(p.outer)?;
            Ok(Box::new(method.with_own_steps(p.own_steps())?))
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
            OPTIMIZER,
            CORRECTION,
            CLIP,
            SHARE_MOMENTS,
            OUTER,
        ],
        note: "needs a smallest eigenvalue of W above -1/3: use mixing = \"lazy-metropolis\"; both kinds of momentum are our extensions",
        build: &|p, _, _| {
            let momentum = p.checked_momentum("led")?;
            let method = Led::with_parts(p.tau(), p.number("beta"), momentum, &p.local, p.outer)?;
            Ok(Box::new(method.with_own_steps(p.own_steps())?))
        },
    }),
    built_in(Row {
        name: "k-gt",
        title: "K-GT",
        reference: "Liu, Lin, Koloskova, Stich 2023",
        exact: true,
        parameters: &[
            LOCAL_STEPS,
            ETA_S,
            MOMENTUM,
            NESTEROV,
            OPTIMIZER,
            CORRECTION,
            CLIP,
            SHARE_MOMENTS,
            OUTER,
        ],
        note: "both kinds of momentum are our extensions; outer.step_size takes the place of eta_s",
        build: &|p, _, _| {
            if let (Some(eta_s), Some(_)) = (p.number("eta_s"), p.outer) {
                let expected = "none with outer; use outer.step_size";
                return Err(Checker("k-gt").refuse("eta_s", eta_s, expected));
            }
            let method = KGt::new(p.tau(), p.number("eta_s").unwrap_or(1.0))?.with_outer(p.outer)?;
            let method = method.with_local(p.checked_momentum("k-gt")?, &p.local)?;
            Ok(Box::new(method.with_own_steps(p.own_steps())?))
        },
    }),
    built_in(Row {
        name: "periodical-gt",
        title: "Periodical-GT",
        reference: "Liu, Lin, Koloskova, Stich 2023",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "our interpretation: no public code",
        build: &|p, _, _| Ok(Box::new(PeriodicalGt::new(p.tau())?.with_own_steps(p.own_steps())?)),
    }),
    built_in(Row {
        name: "dec-fedtrack",
        title: "Dec-FedTrack",
        reference: "Ghiasvand et al. 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S],
        note: "for minimisation, where it is K-GT",
        build: &|p, _, _| {
            let method = DecFedTrack::new(p.tau(), p.number("eta_s").unwrap_or(1.0))?;
            Ok(Box::new(method.with_own_steps(p.own_steps())?))
        },
    }),
    built_in(Row {
        name: "gta-1",
        title: "GTA-1",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "",
        build: &|p, _, _| {
            let method = Gta::one(p.tau(), p.whole("communications").unwrap_or(1))?;
            Ok(Box::new(method.with_own_steps(p.own_steps())?))
        },
    }),
    built_in(Row {
        name: "gta-2",
        title: "GTA-2",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "",
        build: &|p, _, _| {
            let method = Gta::two(p.tau(), p.whole("communications").unwrap_or(1))?;
            Ok(Box::new(method.with_own_steps(p.own_steps())?))
        },
    }),
    built_in(Row {
        name: "gta-3",
        title: "GTA-3",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "two exchanges per communication round, one after the other",
        build: &|p, _, _| {
            let method = Gta::three(p.tau(), p.whole("communications").unwrap_or(1))?;
            Ok(Box::new(method.with_own_steps(p.own_steps())?))
        },
    }),
    built_in(Row {
        name: "diging",
        title: "DIGing",
        reference: "Nedic, Olshevsky, Shi 2017",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "",
        build: &|p, _, _| Ok(Box::new(Diging::new(p.tau())?.with_own_steps(p.own_steps())?)),
    }),
    built_in(Row {
        name: "push-pull",
        title: "AB/push-pull",
        reference: "Nedic, Nguyen, Nguyen 2022",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "our interpretation of what the paper calls PPADCO; A = B = W",
        build: &|p, _, _| Ok(Box::new(PushPull::new(p.tau())?.with_own_steps(p.own_steps())?)),
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
            EXPECTED_STEPS,
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
        parameters: &[EXPECTED_STEPS, PROBABILITY, Parameter::whole("gossip", "1/sqrt(1 - l), rounded up")],
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
            OPTIMIZER,
            CLIP,
            SHARE_MOMENTS,
            OUTER,
            COMPRESSION,
            PROTECTION,
            Parameter::part("gamma", "a number in (0, 1], with compression", "1; with top_k that share"),
        ],
        note: "does not reach a stationary point when the f_i differ, with problem.l1 as without; with compression it is CHOCO-SGD with local steps; with momentum it is DFedAvgM, of which each round of the paper starts with no momentum and here it is kept; with outer momentum on the complete graph it is DiLoCo with plain local steps",
        build: &|p, network, _| {
            let mut p = checked_compression("local-dsgd", p, network)?;
            p.weights_of_compression(false);
            let method = LocalDsgd::new(p.tau())?.with_local(p.checked_momentum("local-dsgd")?, &p.local)?;
            let method = method.with_outer(p.outer)?.with_own_steps(p.own_steps())?;
            let method = match p.compression {
                Some(by) => method.with_compression(by, p.gamma.unwrap_or(1.0))?,
                None => method,
            };
            Ok(Box::new(method.with_robust(p.robust)?))
        },
    }),
    built_in(Row {
        name: "dsgd",
        title: "DSGD",
        reference: "Lian et al. 2017",
        exact: false,
        parameters: &[
            Parameter {
                name: "variant",
                expected: "\"atc\" or \"cta\"",
                default: "\"atc\"",
                kind: ParameterKind::Word(&["atc", "cta"]),
            },
            PROTECTION,
        ],
        note: "does not reach a stationary point when the f_i differ, with problem.l1 as without",
        build: &|p, _, _| {
            let variant = p.word("variant").and_then(Variant::named).unwrap_or_default();
            Ok(Box::new(Dsgd::new(variant).with_robust(p.robust)?))
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
        build: &|p, _, _| {
            let method = Scaffold::new(p.tau(), p.number("eta_s").unwrap_or(1.0))?;
            Ok(Box::new(method.with_own_steps(p.own_steps())?))
        },
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
    rivals::LT_ADMM,
    rivals::DINNO,
    rivals::FSPDA,
    rivals::MOTEF,
    rivals::DILOCO,
    rivals::NOLOCO,
    rivals::GASLOC,
];
