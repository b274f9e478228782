//! Writes a source file anew so that it contains all of its faults at once, each behind a switch.
//!
//! `a + b` becomes `if on(7) { a - b } else { a + b }`, and so on: one build has every fault of a crate, and a variable of the
//! environment says which one a process has. Without the variable the program does what it did.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, Result};
use proc_macro2::{LineColumn, Span, TokenStream};
use quote::quote;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, BinOp, Block, Expr, Pat, Signature, Stmt, UnOp, parse_quote};

use super::list::{Fault, Genre, Place};

/// The variable that switches a fault on, by its number.
pub(super) const VARIABLE: &str = "INTACT_FAULT";
/// The module with the switch, at the root of each crate with faults.
pub(super) const MODULE: &str = "planted_faults";

/// What every root of a crate with faults begins with: the text written here is for the compiler alone.
const LENIENT: &str = "#![allow(warnings, arithmetic_overflow, unconditional_panic)]\n";

/// The text of a crate's root with the switch.
pub(super) fn with_switch(root: &str) -> String {
    format!(
        "{LENIENT}{root}\n#[doc(hidden)]\npub mod {MODULE} {{
    pub fn on(fault: u32) -> bool {{
        static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        let chosen = || std::env::var(\"{VARIABLE}\").ok().and_then(|number| number.parse().ok()).unwrap_or(0);
        *CHOSEN.get_or_init(chosen) == fault
    }}
}}\n"
    )
}

/// A source file with faults.
pub(super) struct Rewritten {
    pub(super) text: String,
    /// The numbers of the faults that the text contains.
    pub(super) planted: BTreeSet<u32>,
}

/// Plants those of `faults`, all of one file, that can be expressed with a switch. Each has its number.
pub(super) fn rewrite<'a>(
    text: &str,
    faults: impl IntoIterator<Item = (u32, &'a Fault)>,
) -> Result<Rewritten> {
    let mut ast = syn::parse_file(text).context("syn")?;
    let mut planter = Planter { open: HashMap::new(), planted: BTreeSet::new() };
    for (number, fault) in faults {
        let open = planter.open.entry((fault.span.start, fault.genre)).or_default();
        open.push((number, fault.replacement.parse().ok().context("no tokens of Rust")?));
    }
    planter.visit_file_mut(&mut ast);
    Ok(Rewritten { text: prettyplease::unparse(&ast), planted: planter.planted })
}

/// Where a thing of the source begins, as cargo-mutants counts.
fn start(span: Span) -> Place {
    place(span.start())
}

pub(super) fn place(LineColumn { line, column }: LineColumn) -> Place {
    Place { line, column: column + 1 }
}

struct Planter {
    /// The faults that are not planted yet, by where they stand, with what they put there.
    open: HashMap<(Place, Genre), Vec<(u32, TokenStream)>>,
    planted: BTreeSet<u32>,
}

impl Planter {
    /// The faults that stand at `span`, each as its switch and what it puts there.
    fn take(&mut self, span: Span, genre: Genre) -> Vec<(Expr, TokenStream)> {
        let here = self.open.remove(&(start(span), genre)).unwrap_or_default();
        here.into_iter().map(|(number, replacement)| (self.switch(number), replacement)).collect()
    }

    fn switch(&mut self, number: u32) -> Expr {
        self.planted.insert(number);
        let module = syn::Ident::new(MODULE, Span::call_site());
        parse_quote!(crate::#module::on(#number))
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &mut Block) {
        // A constant function cannot ask the environment.
        if signature.constness.is_some() || is_test(attributes) {
            return;
        }
        let place = body.stmts.first().map(Spanned::span);
        visit_mut::visit_block_mut(self, body);
        // `impl Trait` is one type, and the fault would return another.
        let output = &signature.output;
        let opaque = quote!(#output).into_iter().any(|token| token.to_string() == "impl");
        let Some(place) = place.filter(|_| !opaque) else { return };
        let faults = self.take(place, Genre::FnValue);
        let early = faults.into_iter().map(|(on, value)| -> Stmt { parse_quote!(if #on { return #value; }) });
        body.stmts.splice(0..0, early);
    }

    fn binary(&mut self, expr: &mut Expr) {
        let Expr::Binary(binary) = expr else { return };
        let op = binary.op;
        let lazy = matches!(op, BinOp::And(_) | BinOp::Or(_));
        // A `let` in a chain of conditions has a meaning only with `&&`.
        let faults = if lazy && (has_let(&binary.left) || has_let(&binary.right)) {
            Vec::new()
        } else {
            self.take(op.span(), Genre::BinaryOperator)
        };
        self.visit_expr_mut(&mut binary.left);
        self.visit_expr_mut(&mut binary.right);
        let (left, right) = (bare(&binary.left), bare(&binary.right));
        if faults.is_empty() {
            return;
        }
        *expr = if lazy {
            // There is one other operator, and the right side is looked at only where it is asked for.
            let (on, _) = &faults[0];
            let go_on: TokenStream =
                if matches!(op, BinOp::And(_)) { quote!(__left != #on) } else { quote!(__left == #on) };
            parse_quote!(({ let __left: bool = #left; if #go_on { #right } else { __left } }))
        } else if is_assignment(op) {
            let chosen = choose(faults, quote!(#left #op #right), |other| quote!(#left #other #right));
            parse_quote!({ #chosen })
        } else if is_comparison(op) {
            let chosen =
                choose(faults, quote!(*__left #op *__right), |other| quote!(*__left #other *__right));
            parse_quote!((match (&(#left), &(#right)) { (__left, __right) => #chosen }))
        } else {
            let chosen = choose(faults, quote!(__left #op __right), |other| quote!(__left #other __right));
            parse_quote!((match (#left, #right) { (__left, __right) => #chosen }))
        };
    }

    fn unary(&mut self, expr: &mut Expr) {
        let Expr::Unary(unary) = expr else { return };
        let faults = self.take(unary.span(), Genre::UnaryOperator);
        self.visit_expr_mut(&mut unary.expr);
        let (op, operand) = (unary.op, bare(&unary.expr));
        if let Some((on, _)) = faults.first() {
            *expr = parse_quote!((match (#operand) { __it => if #on { __it } else { #op __it } }));
        }
    }

    fn match_(&mut self, expr: &mut syn::ExprMatch) {
        self.visit_expr_mut(&mut expr.expr);
        // Without an arm that takes everything a missing one does not compile.
        let wild = |arm: &syn::Arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none();
        let takes_everything = expr.arms.iter().position(wild);
        for (at, arm) in expr.arms.iter_mut().enumerate() {
            let place = arm.span();
            self.visit_expr_mut(&mut arm.body);
            if let Some((_, guard)) = &mut arm.guard {
                if has_let(guard) {
                    self.visit_expr_mut(guard);
                    continue;
                }
                let faults = self.take(guard.span(), Genre::MatchArmGuard);
                self.visit_expr_mut(guard);
                let chosen = choose(faults, quote!(#guard), |value| quote!(#value));
                **guard = parse_quote!(({ #chosen }));
            }
            if takes_everything.is_some_and(|last| at < last)
                && let Some((on, _)) = self.take(place, Genre::MatchArm).first()
            {
                arm.guard = Some(match arm.guard.take() {
                    Some((token, guard)) => (token, parse_quote!((!#on && #guard))),
                    None => (Default::default(), parse_quote!(!#on)),
                });
            }
        }
    }

    fn struct_(&mut self, expr: &mut syn::ExprStruct) {
        let places: Vec<Span> = expr.fields.iter().map(Spanned::span).collect();
        visit_mut::visit_expr_struct_mut(self, expr);
        let Some(base) = &expr.rest else { return };
        // The base's own type may be known only from the struct.
        let path = &expr.path;
        let base: Expr = match &**base {
            Expr::Call(call) if call.args.is_empty() && is_default(&call.func) => {
                parse_quote!(<#path as Default>::default())
            }
            base => base.clone(),
        };
        for (field, place) in expr.fields.iter_mut().zip(places) {
            if let Some((on, _)) = self.take(place, Genre::StructField).first() {
                let (member, value) = (&field.member, &field.expr);
                field.expr = parse_quote!(if #on { (#base).#member } else { #value });
                field.colon_token = Some(Default::default());
            }
        }
    }
}

/// `if on(1) { first } else if on(2) { second } else { original }`.
fn choose(
    faults: Vec<(Expr, TokenStream)>,
    original: TokenStream,
    with: impl Fn(TokenStream) -> TokenStream,
) -> TokenStream {
    faults.into_iter().rev().fold(original, |otherwise, (on, replacement)| {
        let fault = with(replacement);
        quote!(if #on { #fault } else { #otherwise })
    })
}

fn is_comparison(op: BinOp) -> bool {
    matches!(op, BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_))
}

fn is_assignment(op: BinOp) -> bool {
    use BinOp::{
        AddAssign, BitAndAssign, BitOrAssign, BitXorAssign, DivAssign, MulAssign, RemAssign, ShlAssign,
        ShrAssign, SubAssign,
    };
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

fn is_default(function: &Expr) -> bool {
    matches!(function, Expr::Path(path) if path.path.segments.first().is_some_and(|first| first.ident == "Default"))
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("test"))
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

/// Without the parentheses around it.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(inner) => bare(&inner.expr),
        expr => expr,
    }
}

impl VisitMut for Planter {
    // What is computed while compiling cannot ask the environment.
    fn visit_item_const_mut(&mut self, _: &mut syn::ItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut syn::ItemStatic) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}
    fn visit_trait_item_const_mut(&mut self, _: &mut syn::TraitItemConst) {}
    fn visit_item_enum_mut(&mut self, _: &mut syn::ItemEnum) {}
    fn visit_expr_const_mut(&mut self, _: &mut syn::ExprConst) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_path_arguments_mut(&mut self, _: &mut syn::PathArguments) {}
    fn visit_expr_repeat_mut(&mut self, expr: &mut syn::ExprRepeat) {
        self.visit_expr_mut(&mut expr.expr);
    }

    fn visit_item_fn_mut(&mut self, item: &mut syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut syn::TraitItemFn) {
        if let Some(body) = &mut item.default {
            self.function(&item.attrs, &item.sig, body);
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Binary(_) => self.binary(expr),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_) | UnOp::Neg(_)) => self.unary(expr),
            Expr::Match(inner) => self.match_(inner),
            Expr::Struct(inner) => self.struct_(inner),
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }
}
